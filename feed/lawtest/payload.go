package lawtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// TextData is the JSON text of a payload that was published as plain text: a JSON string.
func TextData(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always encodes, and a bytes.Buffer takes everything
	return strings.TrimSuffix(b.String(), "\n")
}

// HashJSON is the hash of a payload by its value as JSON: white space between tokens and the spelling of escapes
// do not count; digits of numbers, the order and repetition of keys, and lone surrogates do. Text that is not JSON
// has a hash of its own, which no JSON text has.
func HashJSON(data string) string {
	canonical, ok := canonicalJSON(data)
	if !ok {
		return hash("not json:" + data)
	}
	return hash(canonical)
}

// HashText is the hash of a payload as a reader with format=raw gets it, and for a publisher that keeps hashes
// only, of what such a reader must get: the text, or for JSON that is not a string its compact form. CR and CRLF
// count as LF, since an SSE block has no other line end.
func HashText(text string) string {
	return hash(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n"))
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// payload holds the hashes by which two sightings of one payload compare; "" is unknown.
type payload struct {
	json string
	text string
	// textAsJSON is set for raw events: the text read as JSON, for payloads that are JSON but no string.
	textAsJSON string
}

// payload computes the hashes of a record's data.
func (r *Record) payload() payload {
	switch {
	case r.Kind == KindEvent && r.Raw && r.DataHash != "":
		return payload{text: r.DataHash}
	case r.Kind == KindEvent && r.Raw:
		p := payload{text: HashText(r.Data)}
		if canonical, ok := canonicalJSON(r.Data); ok {
			p.textAsJSON = hash(canonical)
		}
		return p
	case r.Data == "":
		return payload{json: r.DataHash, text: r.TextHash}
	}
	p := payload{json: HashJSON(r.Data)}
	canonical, ok := canonicalJSON(r.Data)
	var text string
	switch {
	case ok && canonical[0] == '"' && json.Unmarshal([]byte(r.Data), &text) == nil:
		p.text = HashText(text)
	case ok:
		p.text = hash(canonical)
	}
	return p
}

// same says whether a delivered payload may be the published one: false only where both are known and differ.
func (p payload) same(delivered payload) bool {
	if p.json != "" && delivered.json != "" {
		return p.json == delivered.json
	}
	if p.text != "" && delivered.text != "" {
		return p.text == delivered.text || p.text == delivered.textAsJSON
	}
	return true
}

// canonicalJSON spells valid JSON in one way: no white space between tokens, each string with as few escapes as
// possible.
func canonicalJSON(data string) (string, bool) {
	if !json.Valid([]byte(data)) {
		return "", false
	}
	var out strings.Builder
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case ' ', '\t', '\r', '\n':
		case '"':
			end := i + 1
			for data[end] != '"' {
				if data[end] == '\\' {
					end++
				}
				end++
			}
			out.WriteByte('"')
			canonicalString(&out, data[i+1:end])
			out.WriteByte('"')
			i = end
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), true
}

// canonicalString spells the inside of a valid JSON string.
func canonicalString(out *strings.Builder, s string) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'u':
			r := hexRune(s[i+1:])
			i += 4
			if utf16.IsSurrogate(r) && i+6 < len(s) && s[i+1] == '\\' && s[i+2] == 'u' {
				if pair := utf16.DecodeRune(r, hexRune(s[i+3:])); pair != '\uFFFD' {
					r = pair
					i += 6
				}
			}
			canonicalRune(out, r)
		case 'b':
			canonicalRune(out, '\b')
		case 'f':
			canonicalRune(out, '\f')
		case 'n':
			canonicalRune(out, '\n')
		case 'r':
			canonicalRune(out, '\r')
		case 't':
			canonicalRune(out, '\t')
		default: // quote, backslash, slash
			canonicalRune(out, rune(s[i]))
		}
	}
}

func hexRune(s string) rune {
	n, _ := strconv.ParseUint(s[:4], 16, 32) // the JSON is valid, so these are four hex digits
	return rune(n)
}

func canonicalRune(out *strings.Builder, r rune) {
	switch {
	case r == '"' || r == '\\':
		out.WriteByte('\\')
		out.WriteRune(r)
	case r < 0x20 || utf16.IsSurrogate(r):
		fmt.Fprintf(out, `\u%04x`, r)
	default:
		out.WriteRune(r)
	}
}
