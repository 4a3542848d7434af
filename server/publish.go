package server

import (
	"net/http"
	"time"

	"gapless/feed"
)

// Labels of publish metrics: what the body was.
const (
	labelJSON       = "json"
	labelBatch      = "batch"
	labelLines      = "ndjson"
	labelCloudEvent = "cloudevents"
	labelText       = "text"
)

// published is the answer to a publish.
type published struct {
	Epoch  feed.Epoch       `json:"epoch"`
	Events []publishedEvent `json:"events"`
}

type publishedEvent struct {
	Seq       uint64 `json:"seq"`
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate"`
}

// publish is POST /api/v1/events.
func (s *Server) publish(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	form, err := formOf(r.Header)
	if err != nil {
		s.reject(w, r, err)
		return
	}
	d, err := defaultsOf(r)
	if err != nil {
		s.reject(w, r, err)
		return
	}
	if form == formLines || form == formCloudEvent || form == formCloudBatch || form == formCloudBinary {
		if err := d.misplacedID(); err != nil {
			s.reject(w, r, err)
			return
		}
	}
	if form == formLines {
		s.publishLines(w, r, d, begin)
		return
	}
	body, err := s.readBody(w, r, s.cfg.MaxBodyBytes)
	if err != nil {
		s.reject(w, r, err)
		return
	}
	drafts, label, err := decodeBody(body, form, d, r.Header)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	for i := range drafts {
		d.fill(&drafts[i], i+1)
	}
	receipt, err := s.feed.Publish(r.Context(), drafts)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.metrics.published(label, len(drafts), time.Since(begin))
	answer := published{Epoch: receipt.Epoch, Events: make([]publishedEvent, len(receipt.Events))}
	status := http.StatusOK
	for i, ev := range receipt.Events {
		answer.Events[i] = publishedEvent{Seq: ev.Seq, ID: ev.ID, Duplicate: ev.Duplicate}
		if !ev.Duplicate {
			status = http.StatusCreated
		}
	}
	s.respondJSON(w, status, answer)
}

// decodeBody reads a whole body in the form that its request names.
func decodeBody(body []byte, form bodyForm, d defaults, h http.Header) (drafts []feed.Draft, label string, err error) {
	var draft feed.Draft
	switch form {
	case formJSON:
		drafts, err = decodeJSON(body, d)
		if label = labelJSON; err == nil && len(drafts) != 1 {
			label = labelBatch
		}
		return drafts, label, err
	case formCloudBatch:
		drafts, err = decodeCloudBatch(body, d.topic)
		return drafts, labelCloudEvent, err
	case formCloudEvent:
		draft, err = decodeCloudEvent(body, d.topic)
		label = labelCloudEvent
	case formCloudBinary:
		draft, err = decodeBinaryCloudEvent(h, body, d.topic)
		label = labelCloudEvent
	default:
		draft, err = decodePayload(body, form, d)
		label = labelText
	}
	return []feed.Draft{draft}, label, err
}
