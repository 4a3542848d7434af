package memory

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"gapless/feed"
)

// dedupe remembers publishers' ids for a window of time, whatever the
// retention: about 100 bytes an event that came with an id.
type dedupe struct {
	window time.Duration
	seen   map[key]stored
	order  []dated // oldest first, from first on
	first  int
}

// key is a hash of (topic, source, id); 128 bits do not collide by accident.
type key [16]byte

type stored struct {
	seq     uint64
	content [8]byte // hash of type, data and ce
}

type dated struct {
	key  key
	time time.Time
}

func newDedupe(window time.Duration) dedupe {
	return dedupe{window: window, seen: make(map[key]stored)}
}

// print is what identifies one draft; minted drafts have none.
type print struct {
	key
	content [8]byte
}

// fingerprints hashes the drafts, outside of every lock.
func fingerprints(drafts []feed.Draft) []print {
	prints := make([]print, len(drafts))
	for i := range drafts {
		if d := &drafts[i]; !d.Minted {
			prints[i].key = key(hash([]byte(d.Topic), []byte(d.Source), []byte(d.ID))[:16])
			prints[i].content = [8]byte(hash([]byte(d.Type), d.Data, d.CE)[:8])
		}
	}
	return prints
}

// hash keeps its parts apart by their lengths.
func hash(parts ...[]byte) []byte {
	h := sha256.New()
	var n [8]byte
	for _, part := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// admit numbers the drafts that are new, behind head, and fills a receipt
// entry for each draft. It changes nothing: see remember.
func (d *dedupe) admit(drafts []feed.Draft, prints []print, head uint64, receipt []feed.Appended) (fresh []int, err error) {
	fresh = make([]int, 0, len(drafts))
	batch := make(map[key]stored)
	for i := range drafts {
		draft := &drafts[i]
		if !draft.Minted {
			first, ok := d.seen[prints[i].key]
			if !ok {
				first, ok = batch[prints[i].key]
			}
			if ok && first.content != prints[i].content {
				return nil, &feed.Error{
					Code: feed.CodeIDConflict, Op: "append",
					Msg: fmt.Sprintf("event %d: id %q was used on topic %q with other content", i, draft.ID, draft.Topic),
				}
			}
			if ok {
				receipt[i] = feed.Appended{Seq: first.seq, ID: draft.ID, Duplicate: true}
				continue
			}
			batch[prints[i].key] = stored{seq: head + 1, content: prints[i].content}
		}
		head++
		receipt[i] = feed.Appended{Seq: head, ID: draft.ID}
		fresh = append(fresh, i)
	}
	return fresh, nil
}

// remember takes up the drafts that were stored.
func (d *dedupe) remember(drafts []feed.Draft, prints []print, fresh []int, receipt []feed.Appended, now time.Time) {
	for _, i := range fresh {
		if !drafts[i].Minted {
			d.seen[prints[i].key] = stored{seq: receipt[i].Seq, content: prints[i].content}
			d.order = append(d.order, dated{key: prints[i].key, time: now})
		}
	}
}

// expire forgets what is older than the window.
func (d *dedupe) expire(now time.Time) {
	for d.first < len(d.order) && now.Sub(d.order[d.first].time) >= d.window {
		delete(d.seen, d.order[d.first].key)
		d.first++
	}
	if d.first > 1024 && d.first*2 > len(d.order) {
		d.order = append([]dated(nil), d.order[d.first:]...)
		d.first = 0
		seen := make(map[key]stored, len(d.order)) // a map never shrinks
		for _, o := range d.order {
			seen[o.key] = d.seen[o.key]
		}
		d.seen = seen
	}
}
