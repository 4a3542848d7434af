package server

import (
	"mime"
	"net/http"
	"strings"
)

// bodyForm is how a publish body is to be read.
type bodyForm uint8

const (
	formJSON        bodyForm = iota + 1 // one publish object, or an array of them
	formLines                           // one publish object a line
	formCloudEvent                      // one structured CloudEvent
	formCloudBatch                      // an array of them
	formCloudBinary                     // the payload, its attributes in ce-* headers
	formText                            // the payload, as text
	formPayloadJSON                     // the payload, as JSON
)

// formOf reads a request's Content-Type and encoding. The error is a 415.
func formOf(h http.Header) (bodyForm, error) {
	for _, coding := range h.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return 0, problemf(codeUnsupportedMedia, "Content-Encoding: %q is not taken; send the body as it is", clip(coding))
		}
	}
	// Said twice it is malformed, as HTTP joins the two.
	contentType := strings.Join(h.Values("Content-Type"), ", ")
	binary := isBinaryCloudEvent(h)
	if contentType == "" && binary {
		return formCloudBinary, nil
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, problemf(codeUnsupportedMedia, "Content-Type: %q is missing or malformed; send for example application/json", clip(contentType))
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return 0, problemf(codeUnsupportedMedia, "charset %q is not taken; send UTF-8", clip(charset))
	}
	switch {
	case media == "application/cloudevents+json":
		return formCloudEvent, nil
	case media == "application/cloudevents-batch+json":
		return formCloudBatch, nil
	case strings.HasPrefix(media, "application/cloudevents"):
		return 0, problemf(codeUnsupportedMedia, "of CloudEvents, the JSON format, its batches and binary mode are taken")
	case binary:
		return formCloudBinary, nil
	case media == "application/json":
		return formJSON, nil
	case media == "application/x-ndjson", media == "application/ndjson", media == "application/jsonl":
		return formLines, nil
	case isJSONType(media):
		return formPayloadJSON, nil
	case isTextType(media):
		return formText, nil
	case media == "application/x-www-form-urlencoded":
		return 0, problemf(codeUnsupportedMedia, "a form is no event; say what the body is, as curl does with -H 'Content-Type: application/json'")
	}
	return 0, problemf(codeUnsupportedMedia, "%q is no text; JSON, NDJSON, CloudEvents and text types are taken", clip(media))
}

// isJSONType reports whether the media type's payload is JSON (RFC 6839).
func isJSONType(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// isTextType reports whether the media type's payload is text.
func isTextType(media string) bool {
	if strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+xml") || strings.HasSuffix(media, "+yaml") {
		return true
	}
	switch media {
	case "application/xml", "application/javascript", "application/ecmascript", "application/yaml",
		"application/x-yaml", "application/toml", "application/sql", "application/graphql":
		return true
	}
	return false
}
