package server

import (
	"bytes"
	"encoding/json"
	"strings"

	"gapless/feed"
)

var bom = []byte("\xef\xbb\xbf") // read-only

// checkJSON returns an error where b is not exactly one JSON text (RFC 8259).
func checkJSON(b []byte) error {
	if !json.Valid(b) {
		var nothing json.RawMessage
		return problemf(feed.CodeInvalid, "not valid JSON: %v", json.Unmarshal(b, &nothing))
	}
	return nil
}

// members calls visit for each member of the object b, which is valid JSON,
// in order, with its value's bytes as they stand. An object that says a name
// twice is refused: readers would not agree on what it says.
func members(b []byte, visit func(name string, value []byte) error) error {
	i := skipSpace(b, 0)
	if b[i] != '{' {
		return problemf(feed.CodeInvalid, "want a JSON object")
	}
	seen := make(map[string]struct{}, 8)
	for i = skipSpace(b, i+1); b[i] != '}'; {
		end := endOfString(b, i)
		name := jsonText(b[i:end])
		if _, ok := seen[name]; ok {
			return problemf(feed.CodeInvalid, "%s: given twice", clip(name))
		}
		seen[name] = struct{}{}
		i = skipSpace(b, skipSpace(b, end)+1) // behind the colon
		end = endOfValue(b, i)
		if err := visit(name, b[i:end]); err != nil {
			return err
		}
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return nil
}

// elements calls visit for each element of the array b, which is valid JSON.
func elements(b []byte, visit func(i int, value []byte) error) error {
	i := skipSpace(b, 0)
	if b[i] != '[' {
		return problemf(feed.CodeInvalid, "want a JSON array")
	}
	i = skipSpace(b, i+1)
	for n := 0; b[i] != ']'; n++ {
		end := endOfValue(b, i)
		if err := visit(n, b[i:end]); err != nil {
			return err
		}
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return nil
}

// isArray reports whether valid JSON is an array.
func isArray(b []byte) bool { return b[skipSpace(b, 0)] == '[' }

// textOf returns the text of a value that must be a JSON string.
func textOf(name string, value []byte) (string, error) {
	if value[0] != '"' {
		return "", problemf(feed.CodeInvalid, "%s: want a string", name)
	}
	return jsonText(value), nil
}

// jsonText decodes a valid JSON string.
func jsonText(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return strings.ToValidUTF8(string(inner), "\ufffd")
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		panic(err) // the caller has checked it
	}
	return text
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// endOfString returns the index behind the string that begins at i.
func endOfString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// endOfValue returns the index behind the value that begins at i.
func endOfValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return endOfString(b, i)
	case '{', '[':
		depth := 0
		for ; ; i++ {
			switch b[i] {
			case '"':
				i = endOfString(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(b) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(b[i])) {
		i++
	}
	return i
}
