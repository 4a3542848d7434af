package lawtest

import (
	"slices"
	"strings"
)

// matchTopic says whether a topic pattern matches a topic: tokens between dots, "*" for one token, ">" at the end
// for one or more. It is a second, naive implementation on purpose: the judge shares no code with the judged.
func matchTopic(pattern, topic string) bool {
	p, t := strings.Split(pattern, "."), strings.Split(topic, ".")
	for i, token := range p {
		switch {
		case token == ">" && i == len(p)-1:
			return len(t) > i
		case i >= len(t):
			return false
		case token != "*" && token != t[i]:
			return false
		}
	}
	return len(p) == len(t)
}

// wants says whether a subscribe record asks for events of this topic and type.
func (r *Record) wants(topic, typ string) bool {
	if len(r.Types) > 0 && !slices.Contains(r.Types, typ) {
		return false
	}
	patterns := r.Topics
	if len(patterns) == 0 {
		patterns = []string{">"}
	}
	// The server's own events reach raw and unnamed streams only where a pattern names them.
	reserved := (r.Raw || r.Unnamed) && strings.HasPrefix(topic, "gapless.")
	for _, p := range patterns {
		if reserved && !strings.HasPrefix(p, "gapless.") {
			continue
		}
		if matchTopic(p, topic) {
			return true
		}
	}
	return false
}
