package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"gapless/feed"
)

// topicAttribute is the extension that names the topic.
const topicAttribute = "gaplesstopic"

// cloudEvent is a CloudEvent (version 1.0) as it is read, attribute by
// attribute. The SDK judges the attributes; the bytes are kept as they came,
// since the SDK would rewrite times and numbers.
type cloudEvent struct {
	context     event.EventContextV1
	specVersion string
	source      string // as it came
	topic       string
	kept        []byte // the attributes that Draft.CE keeps: members of an object
	data        []byte // JSON; nil: none
	base64      []byte // a JSON string; nil: none
}

// decodeCloudEvent reads a structured CloudEvent (JSON format, section 3).
func decodeCloudEvent(body []byte, topic string) (feed.Draft, error) {
	body = bytes.TrimPrefix(body, bom)
	if err := checkJSON(body); err != nil {
		return feed.Draft{}, err
	}
	return decodeCloudObject(body, topic)
}

// decodeCloudBatch reads an array of structured CloudEvents (JSON format,
// section 4).
func decodeCloudBatch(body []byte, topic string) ([]feed.Draft, error) {
	body = bytes.TrimPrefix(body, bom)
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	return decodeArray(body, func(b []byte) (feed.Draft, error) { return decodeCloudObject(b, topic) })
}

func decodeCloudObject(b []byte, topic string) (feed.Draft, error) {
	var ce cloudEvent
	err := members(b, func(name string, value []byte) error {
		switch name {
		case "data":
			ce.data = value
			return nil
		case "data_base64":
			ce.base64 = value
			return nil
		}
		return ce.set(name, value)
	})
	if err != nil {
		return feed.Draft{}, err
	}
	draft, err := ce.draft(topic)
	if err != nil {
		return feed.Draft{}, err
	}
	draft.Data, err = ce.payload()
	return draft, err
}

// isBinaryCloudEvent reports whether the headers carry a CloudEvent's
// attributes (HTTP binding, section 3.1).
func isBinaryCloudEvent(h http.Header) bool {
	for _, name := range []string{"Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type"} {
		if h[name] != nil {
			return true
		}
	}
	return false
}

// decodeBinaryCloudEvent reads a CloudEvent whose attributes are headers and
// whose data is the body (HTTP binding, section 3.1).
func decodeBinaryCloudEvent(h http.Header, body []byte, topic string) (feed.Draft, error) {
	var ce cloudEvent
	for _, header := range slices.Sorted(maps.Keys(h)) {
		name, ok := strings.CutPrefix(strings.ToLower(header), "ce-")
		if !ok {
			continue
		}
		if len(h[header]) > 1 {
			return feed.Draft{}, problemf(feed.CodeInvalid, "%s: given twice", clip(header))
		}
		text, err := url.PathUnescape(h.Get(header)) // section 3.1.3.2
		if err != nil || !utf8.ValidString(text) || name == "datacontenttype" {
			return feed.Draft{}, problemf(feed.CodeInvalid, "%s: not a percent-encoded attribute of CloudEvents' HTTP binding", clip(header))
		}
		if err := ce.set(name, quote(text)); err != nil {
			return feed.Draft{}, err
		}
	}
	if contentType := h.Get("Content-Type"); contentType != "" {
		if err := ce.set("datacontenttype", quote(contentType)); err != nil {
			return feed.Draft{}, err
		}
	}
	draft, err := ce.draft(topic)
	if err == nil && (len(body) > 0 || ce.context.DataContentType != nil) {
		draft.Data, err = payloadOf(ce.mediaType(), body)
	}
	return draft, err
}

func quote(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return quoted
}

// set takes one attribute: its name and its JSON value. Null is absent.
func (ce *cloudEvent) set(name string, value []byte) error {
	if string(value) == "null" {
		return nil
	}
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }) {
		return problemf(feed.CodeInvalid, "%q: attribute names of CloudEvents are lower-case letters and digits", clip(name))
	}
	var text string
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "dataschema", "datacontenttype", topicAttribute:
		var err error
		if text, err = textOf(name, value); err != nil {
			return err
		}
	default:
		return ce.extend(name, value)
	}
	bad := problemf(feed.CodeInvalid, "%s: not valid in CloudEvents 1.0", name)
	c := &ce.context
	switch name {
	case "specversion":
		ce.specVersion = text
		return nil
	case "id":
		c.ID = text
		return nil
	case "type":
		c.Type = text
		return nil
	case topicAttribute:
		ce.topic = text
		return nil
	case "source":
		source := types.ParseURIRef(text)
		if source == nil {
			return bad
		}
		c.Source, ce.source = *source, text
	case "subject":
		c.Subject = &text
	case "time":
		at, err := types.ParseTimestamp(text)
		if err != nil || at == nil {
			return bad
		}
		c.Time = at
	case "dataschema":
		if c.DataSchema = types.ParseURI(text); c.DataSchema == nil {
			return bad
		}
	case "datacontenttype":
		c.DataContentType = &text
	}
	ce.keep(name, value)
	return nil
}

// extend takes an extension: a string, a Boolean or a 32-bit integer.
func (ce *cloudEvent) extend(name string, value []byte) error {
	var known any
	switch value[0] {
	case '"':
		known = jsonText(value)
	case 't', 'f':
		known = value[0] == 't'
	default:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < math.MinInt32 || n > math.MaxInt32 {
			return problemf(feed.CodeInvalid, "%s: an extension is a string, a Boolean or a 32-bit integer", name)
		}
		known = int32(n)
	}
	if err := ce.context.SetExtension(name, known); err != nil {
		return problemf(feed.CodeInvalid, "%s: %v", name, err)
	}
	ce.keep(name, value)
	return nil
}

func (ce *cloudEvent) keep(name string, value []byte) {
	ce.kept = append(ce.kept, ',', '"')
	ce.kept = append(ce.kept, name...) // lower-case letters and digits
	ce.kept = append(ce.kept, '"', ':')
	ce.kept = append(ce.kept, value...)
}

// draft judges the attributes and makes a draft without data. The topic is
// the request's, else the event's own.
func (ce *cloudEvent) draft(topic string) (feed.Draft, error) {
	if ce.specVersion != event.CloudEventsVersionV1 {
		return feed.Draft{}, problemf(feed.CodeInvalid, "specversion: want %q", event.CloudEventsVersionV1)
	}
	if errs := ce.context.Validate(); len(errs) > 0 {
		name := slices.Min(slices.Collect(maps.Keys(errs)))
		return feed.Draft{}, problemf(feed.CodeInvalid, "%s: %v", name, errs[name])
	}
	if topic == "" {
		topic = ce.topic
	}
	draft := feed.Draft{ID: ce.context.ID, Type: ce.context.Type, Topic: topic, Source: ce.source}
	if len(ce.kept) > 0 {
		draft.CE = append([]byte{'{'}, ce.kept[1:]...)
		draft.CE = append(draft.CE, '}')
	}
	return draft, nil
}

// mediaType is the datacontenttype without parameters; "" where there is none.
func (ce *cloudEvent) mediaType() string {
	if ce.context.DataContentType == nil {
		return ""
	}
	media, _, err := mime.ParseMediaType(*ce.context.DataContentType)
	if err != nil {
		return *ce.context.DataContentType
	}
	return media
}

// payload returns the data of a structured event. Data that is JSON stays as
// it stands; data in base64 is what its bytes are.
func (ce *cloudEvent) payload() (json.RawMessage, error) {
	switch {
	case ce.base64 == nil || string(ce.base64) == "null":
		return ce.data, nil
	case ce.data != nil:
		return nil, problemf(feed.CodeInvalid, "data and data_base64: one of them at a time")
	}
	text, err := textOf("data_base64", ce.base64)
	if err != nil {
		return nil, err
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, problemf(feed.CodeInvalid, "data_base64: %v", err)
	}
	return payloadOf(ce.mediaType(), decoded)
}

// payloadOf makes data of bytes of a media type: JSON, also where there is
// no type, or text.
func payloadOf(media string, body []byte) (json.RawMessage, error) {
	switch {
	case media == "" || isJSONType(media):
		body = bytes.TrimPrefix(body, bom)
		return body, checkJSON(body)
	case isTextType(media):
		return feed.TextData(body)
	default:
		return nil, problemf(codeUnsupportedMedia, "data of %q is no text; JSON and text types are taken", clip(media))
	}
}
