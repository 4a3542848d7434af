package server

import (
	"net/http"
	"strconv"
	"time"

	"gapless/feed"
)

// Bounds of a catch-up request.
const (
	defaultReadEvents = 100
	longestWait       = time.Minute
)

// catchUp is GET /api/v1/events: one page of JSON behind a position.
func (s *Server) catchUp(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.RawQuery)
	if q.values.Has("consumer") {
		q.fail("consumer: this version has no server-side consumers; read on with a cursor")
	}
	opts := feed.ReadOptions{
		From:   q.from(lastEventID(r.Header.Values("Last-Event-ID"))),
		Filter: q.filter(false),
		Limit:  q.number("limit", defaultReadEvents, 1, feed.MaxReadEvents),
		Wait:   q.wait("wait", longestWait),
	}
	if opts.Invalid {
		q.fail("Last-Event-ID: want a cursor as `id:` carries it, or a decimal number")
	}
	if err := q.mistake(); err != nil {
		s.fail(w, r, err)
		return
	}
	page, err := s.feed.Read(r.Context(), opts)
	switch {
	case err != nil:
		s.fail(w, r, err)
	case page.Resync != "":
		s.fail(w, r, resyncProblem(page))
	default:
		s.respond(w, http.StatusOK, "application/json", pageJSON(page))
	}
}

// pageJSON builds the answer by hand: the envelopes are JSON already.
func pageJSON(page feed.ReadResult) []byte {
	size := 256
	for _, ev := range page.Events {
		size += len(ev) + 1
	}
	b := make([]byte, 0, size)
	b = append(b, `{"epoch":"`...)
	b = append(b, page.Epoch...)
	b = append(b, `","events":[`...)
	for i, ev := range page.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, ev...)
	}
	b = append(b, `],"last_seq":`...)
	b = strconv.AppendUint(b, page.Last.Seq, 10)
	b = append(b, `,"cursor":"`...)
	b = append(b, page.Last.String()...)
	b = append(b, `","head_seq":`...)
	b = strconv.AppendUint(b, page.Head.Seq, 10)
	b = append(b, `,"has_more":`...)
	b = strconv.AppendBool(b, page.HasMore)
	return append(b, '}', '\n')
}

// resyncProblem is the 410 of a position that cannot be served.
func resyncProblem(page feed.ReadResult) *problem {
	p := problemf(codeResyncRequired, "%s", resyncSentence(page.Resync))
	p.Epoch = page.Epoch
	p.Reason = string(page.Resync)
	p.resyncMembers = &resyncMembers{OldestSeq: page.Oldest, HeadSeq: page.Head.Seq}
	return p
}

// resyncSentence says a reason in words, and what to do about it.
func resyncSentence(reason feed.Reason) string {
	const again = "; begin again without a cursor"
	switch reason {
	case feed.ReasonCursorExpired, feed.ReasonLagged:
		return "the log no longer holds what follows the cursor" + again
	case feed.ReasonCursorAhead:
		return "the cursor is above the head of the log" + again
	case feed.ReasonEpochMissing:
		return "a seq alone says nothing; give its epoch too, or begin again without both"
	case feed.ReasonEpochChanged:
		return "the cursor is of another epoch" + again
	case feed.ReasonHistoryChanged, feed.ReasonLogReset:
		return "the log was rolled back behind the cursor" + again
	case feed.ReasonEncodingFailed:
		return "the next event cannot be sent" + again + ": a snapshot passes it"
	default:
		return "the cursor is not valid" + again
	}
}
