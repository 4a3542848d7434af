package server

import (
	"mime"
	"net"
	"net/http"
	"strings"

	"gapless/feed"
)

// maxAdminBytes bounds the body of an operator's request.
const maxAdminBytes = 1 << 20

// maxActorBytes bounds a name in the audit trail.
const maxActorBytes = 128

// readMembers reads an operator's request, a JSON object, and visits each of
// its members. It insists on the content type, which a page of another origin
// cannot send unasked.
func (s *Server) readMembers(w http.ResponseWriter, r *http.Request, visit func(name string, value []byte) error) error {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return problemf(codeUnsupportedMedia, "want a JSON object, with Content-Type: application/json")
	}
	body, err := s.readBody(w, r, min(s.cfg.MaxBodyBytes, maxAdminBytes))
	if err != nil {
		return err
	}
	if err := checkJSON(body); err != nil {
		return err
	}
	return members(body, visit)
}

// boolOf returns the value of a member that must be true or false.
func boolOf(name string, value []byte) (bool, error) {
	switch string(value) {
	case "true", "false":
		return string(value) == "true", nil
	}
	return false, problemf(feed.CodeInvalid, "%s: want true or false", name)
}

// manifestOf returns the value of a member that must be a backup's manifest.
// Null is none: who meant to relocate must not begin a new epoch instead.
func manifestOf(name string, value []byte) (*feed.Manifest, error) {
	if value[0] != '{' {
		return nil, problemf(feed.CodeInvalid, "%s: want the manifest of a final backup, an object, or no such member", name)
	}
	m, err := feed.ParseManifest(value)
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// epochOf returns the value of a member that must be an epoch.
func epochOf(name string, value []byte) (feed.Epoch, error) {
	text, err := textOf(name, value)
	if err == nil && text == "" {
		err = problemf(feed.CodeInvalid, "%s: want the epoch that was seen, or no such member", name)
	}
	return feed.Epoch(text), err
}

// actorOf is who acts, where the request does not say.
func actorOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "a client at " + host
}

// setActor takes who acts from a request: a name for people, in one line.
func setActor(actor *string, value []byte) error {
	text, err := textOf("actor", value)
	if err != nil {
		return err
	}
	if len(text) > maxActorBytes || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return problemf(feed.CodeInvalid, "actor: want one line of at most %d bytes", maxActorBytes)
	}
	if text != "" {
		*actor = text
	}
	return nil
}
