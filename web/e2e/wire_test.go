//go:build e2e

package e2e_test

import (
	"strings"
	"testing"
)

// parseStream reads the bytes of a stream by the HTML standard's rules, keeping only what is complete.
func parseStream(t *testing.T, raw string) []sighting {
	t.Helper()
	raw = strings.TrimPrefix(raw, "\ufeff")
	raw = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(raw)
	var events []sighting
	lastID := ""
	end := strings.LastIndex(raw, "\n\n")
	if end < 0 {
		return nil
	}
	for block := range strings.SplitSeq(raw[:end], "\n\n") {
		kind, data, hasData := "message", []string{}, false
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				kind = value
			case "data":
				data, hasData = append(data, value), true
			case "id":
				lastID = value
			case "retry", "":
			default:
				t.Errorf("unknown field in %q", line)
			}
		}
		if !hasData {
			t.Errorf("a block without data, which some clients deliver as an empty event: %q", block)
			continue
		}
		events = append(events, sighting{Type: kind, ID: lastID, Data: strings.Join(data, "\n")})
	}
	return events
}

// idIsLast fails where a block has a field after its id: a client that was cut there would resume past the event.
func idIsLast(t *testing.T, raw string) {
	t.Helper()
	for block := range strings.SplitSeq(strings.TrimRight(raw, "\n"), "\n\n") {
		lines := strings.Split(block, "\n")
		for _, line := range lines[:len(lines)-1] {
			if strings.HasPrefix(line, "id:") {
				t.Errorf("the id is not the last line of %q", block)
			}
		}
	}
}
