package server

import (
	"bytes"
	"net/http"
	"strconv"

	"gapless/feed"
)

// defaults are what a publish request says for events that do not say it.
type defaults struct {
	typ, topic string
	id         string // of a body that is one event
	key        string // Idempotency-Key: gives ids where there are none
}

// maxKeyBytes leaves room for a colon and a number in an id.
const maxKeyBytes = 100

// defaultsOf reads a publish request's query and Idempotency-Key.
func defaultsOf(r *http.Request) (defaults, error) {
	q := parseQuery(r.URL.RawQuery)
	d := defaults{typ: q.one("type"), topic: q.one("topic"), id: q.one("id"), key: r.Header.Get("Idempotency-Key")}
	if len(d.key) > maxKeyBytes {
		q.fail("Idempotency-Key: at most %d bytes are taken", maxKeyBytes)
	}
	for i := range len(d.key) {
		if d.key[i] < 0x20 || d.key[i] > 0x7e {
			q.fail("Idempotency-Key: want printable ASCII")
			break
		}
	}
	return d, q.mistake()
}

// fill gives a draft what it does not say itself; n is its place in the
// request, from 1.
func (d defaults) fill(draft *feed.Draft, n int) {
	if draft.Type == "" {
		draft.Type = d.typ
	}
	if draft.Topic == "" {
		draft.Topic = d.topic
	}
	if draft.ID == "" && d.key != "" {
		draft.ID = d.key + ":" + strconv.Itoa(n)
	}
}

// misplacedID refuses the id of the query where the events have their own, or
// are several: without it, a publisher would believe its retries idempotent.
func (d defaults) misplacedID() error {
	if d.id == "" {
		return nil
	}
	return problemf(feed.CodeInvalid, "id: the parameter is for a body that is one event without an id; put the ids into the events, or send an Idempotency-Key")
}

// decodeJSON reads a body of application/json: one publish object, or an
// array of them.
func decodeJSON(body []byte, d defaults) ([]feed.Draft, error) {
	body = bytes.TrimPrefix(body, bom)
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	if isArray(body) {
		if err := d.misplacedID(); err != nil {
			return nil, err
		}
		return decodeArray(body, decodeObject)
	}
	draft, err := decodeObject(body)
	switch {
	case err != nil:
		return nil, err
	case draft.ID == "":
		draft.ID = d.id
	default:
		err = d.misplacedID()
	}
	return []feed.Draft{draft}, err
}

// decodeArray decodes each element of an array of valid JSON.
func decodeArray(body []byte, decode func([]byte) (feed.Draft, error)) ([]feed.Draft, error) {
	var drafts []feed.Draft
	err := elements(body, func(i int, value []byte) error {
		if i == feed.MaxBatchEvents {
			return problemf(feed.CodeTooLarge, "the array holds more than %d events; send several, or NDJSON", feed.MaxBatchEvents)
		}
		draft, err := decode(value)
		if err != nil {
			p := problemOf(err)
			return problemf(p.Code, "event %d of the batch: %s", i, p.Detail)
		}
		drafts = append(drafts, draft)
		return nil
	})
	return drafts, err
}

// decodeObject reads one publish object of valid JSON. Its data stays as it
// stands, byte for byte. A member that is not known is refused: it is a
// misspelled one, or one that would be lost.
func decodeObject(b []byte) (feed.Draft, error) {
	var draft feed.Draft
	err := members(b, func(name string, value []byte) (err error) {
		switch name {
		case "type":
			draft.Type, err = fullText(name, value)
		case "topic":
			draft.Topic, err = fullText(name, value)
		case "id":
			draft.ID, err = fullText(name, value)
		case "data":
			draft.Data = value
		default:
			err = problemf(feed.CodeInvalid, "%q is not a member of an event; its members are type, topic, data and id", clip(name))
		}
		return err
	})
	return draft, err
}

// fullText is textOf for what must not be empty: left out, it has a default.
func fullText(name string, value []byte) (string, error) {
	text, err := textOf(name, value)
	if err == nil && text == "" {
		err = problemf(feed.CodeInvalid, "%s: is empty; leave it out for the default", name)
	}
	return text, err
}

// decodePayload reads a body that is the payload itself.
func decodePayload(body []byte, form bodyForm, d defaults) (feed.Draft, error) {
	draft := feed.Draft{Type: d.typ, Topic: d.topic, ID: d.id}
	if form == formPayloadJSON {
		draft.Data = bytes.TrimPrefix(body, bom)
		return draft, checkJSON(draft.Data)
	}
	var err error
	draft.Data, err = feed.TextData(body)
	return draft, err
}
