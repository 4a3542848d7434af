package feed

import (
	"fmt"
	"slices"
	"strings"
)

// ValidateTopic checks a topic: dot-separated tokens of [A-Za-z0-9_-]+, at
// most 16 of them and 255 bytes in all. The error has [CodeInvalid].
func ValidateTopic(topic string) error {
	return validateTokens("topic", topic, false)
}

// ValidatePattern checks a topic pattern: a topic in which a token may be `*`
// (exactly one token) and the last one `>` (one or more tokens).
func ValidatePattern(pattern string) error {
	return validateTokens("topic pattern", pattern, true)
}

func validateTokens(what, s string, wildcards bool) error {
	if s == "" || len(s) > MaxTopicBytes {
		return invalid("topic", fmt.Sprintf("%s: want 1 to %d bytes", what, MaxTopicBytes))
	}
	tokens := strings.Split(s, ".")
	if len(tokens) > MaxTopicTokens {
		return invalid("topic", fmt.Sprintf("%s: %d tokens, at most %d are taken", what, len(tokens), MaxTopicTokens))
	}
	for i, token := range tokens {
		if wildcards && (token == "*" || token == ">" && i == len(tokens)-1) {
			continue
		}
		if !validToken(token) {
			return invalid("topic", fmt.Sprintf("%s: %q is no token of [A-Za-z0-9_-]+", what, clip(token)))
		}
	}
	return nil
}

func validToken(token string) bool {
	if token == "" {
		return false
	}
	for i := range len(token) {
		if !isTokenByte(token[i]) {
			return false
		}
	}
	return true
}

// matchPattern reports whether a valid pattern matches a valid topic.
func matchPattern(pattern, topic string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		t, trest, tmore := strings.Cut(topic, ".")
		if p == ">" {
			return true
		}
		if p != "*" && p != t {
			return false
		}
		if !pmore || !tmore {
			return pmore == tmore
		}
		pattern, topic = prest, trest
	}
}

func isSystemTopic(topic string) bool {
	return firstToken(topic) == SystemTopic
}

func firstToken(s string) string {
	token, _, _ := strings.Cut(s, ".")
	return token
}

// Filter says which events a reader asked for. The zero Filter matches every
// event. A Filter is immutable and safe for concurrent use.
type Filter struct {
	patterns []string // empty: every topic
	types    []string // empty: every type
	// systemByName: events under `gapless.` match only a pattern whose first
	// token is `gapless` (raw and unnamed streams, consumers, webhooks).
	systemByName bool
	hidden       map[string]struct{} // types that no reader gets
}

// MaxPatterns bounds the topics and the types of one filter.
const MaxPatterns = 64

// NewFilter checks the patterns and types and returns their filter. With
// systemByName, the server's own events match only where a pattern names
// them. The error has [CodeInvalid].
func NewFilter(patterns, types []string, systemByName bool) (Filter, error) {
	if len(patterns) > MaxPatterns || len(types) > MaxPatterns {
		return Filter{}, invalid("filter", fmt.Sprintf("at most %d topics and %d types are taken", MaxPatterns, MaxPatterns))
	}
	for _, p := range patterns {
		if err := ValidatePattern(p); err != nil {
			return Filter{}, err
		}
	}
	for _, t := range types {
		if !validType(t) {
			return Filter{}, invalid("filter", fmt.Sprintf("type: %q does not match [A-Za-z0-9._:/-]{1,128}", clip(t)))
		}
	}
	return Filter{patterns: slices.Clone(patterns), types: slices.Clone(types), systemByName: systemByName}, nil
}

// hiding returns the filter without the given types.
func (f Filter) hiding(types map[string]struct{}) Filter {
	f.hidden = types
	return f
}

// Match reports whether an event of this topic and type is asked for.
func (f Filter) Match(topic, typ string) bool {
	return f.MatchType(typ) && f.MatchTopic(topic)
}

// MatchType reports whether an event of this type on some topic could match.
func (f Filter) MatchType(typ string) bool {
	if _, hidden := f.hidden[typ]; hidden {
		return false
	}
	return len(f.types) == 0 || slices.Contains(f.types, typ)
}

// AllTopics reports whether every topic matches.
func (f Filter) AllTopics() bool {
	return !f.systemByName && (len(f.patterns) == 0 || slices.Contains(f.patterns, ">"))
}

// ExactTopics returns the topics that can match, each once, where the filter
// names them all, without a wildcard; else ok is false.
func (f Filter) ExactTopics() (topics []string, ok bool) {
	for _, p := range f.patterns {
		if strings.ContainsAny(p, "*>") {
			return nil, false
		}
	}
	topics = slices.Clone(f.patterns)
	slices.Sort(topics)
	return slices.Compact(topics), len(topics) > 0
}

// MatchTopic reports whether any type of this topic could match.
func (f Filter) MatchTopic(topic string) bool {
	named := !f.systemByName || !isSystemTopic(topic)
	if named && len(f.patterns) == 0 {
		return true
	}
	for _, p := range f.patterns {
		if (named || firstToken(p) == SystemTopic) && matchPattern(p, topic) {
			return true
		}
	}
	return false
}

// Topics returns the patterns, `>` where none was given.
func (f Filter) Topics() []string {
	if len(f.patterns) == 0 {
		return []string{">"}
	}
	return slices.Clone(f.patterns)
}

// Types returns the types, none where every type matches.
func (f Filter) Types() []string { return slices.Clone(f.types) }
