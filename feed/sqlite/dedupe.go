package sqlite

import (
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"time"

	"gapless/feed"
)

// generations is into how many maps the dedupe window is split: whole maps
// are dropped as they expire, since a map never shrinks.
const generations = 8

// dedupe knows the publishers' ids of the dedupe window, whatever the
// retention: some 50 bytes of memory an event that came with an id. The table
// of the same name holds them durably and says the rest; it has no index on
// the keys, since each commit would then write a page for every event.
type dedupe struct {
	window  int64        // µs
	recent  []generation // oldest first
	expired uint64       // rows up to this seq may be deleted
	swept   uint64       // rows up to this seq were
}

// generation is the ids of one part of the window.
type generation struct {
	first, last int64 // times of its events, µs
	lastSeq     uint64
	seqs        map[key]uint64
}

// key is a hash of (topic, source, id); 128 bits do not collide by accident.
type key [16]byte

// print is what identifies one draft; minted drafts have none.
type print struct {
	key
	content [8]byte // hash of type, data and ce
}

// fingerprints hashes the drafts, outside of every lock; nil where all of
// them are minted.
func fingerprints(drafts []feed.Draft) []print {
	var prints []print
	for i := range drafts {
		d := &drafts[i]
		if d.Minted {
			continue
		}
		if prints == nil {
			prints = make([]print, len(drafts))
		}
		prints[i].key = key(hash([]byte(d.Topic), []byte(d.Source), []byte(d.ID))[:16])
		prints[i].content = [8]byte(hash([]byte(d.Type), d.Data, d.CE)[:8])
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

// find returns the seq under which a key was stored last. It may have expired
// since: the row says when it was stored.
func (d *dedupe) find(k key) (seq uint64, ok bool) {
	for i := len(d.recent) - 1; i >= 0; i-- {
		if seq, ok := d.recent[i].seqs[k]; ok {
			return seq, true
		}
	}
	return 0, false
}

// remember takes up a key that was stored. Times and seqs rise from call to
// call.
func (d *dedupe) remember(k key, seq uint64, at int64) {
	n := len(d.recent)
	if n == 0 || at-d.recent[n-1].first >= d.window/generations {
		d.recent = append(d.recent, generation{first: at, seqs: make(map[key]uint64)})
		n++
	}
	g := &d.recent[n-1]
	g.last, g.lastSeq = at, seq
	g.seqs[k] = seq
}

// expire forgets the generations that are older than the window.
func (d *dedupe) expire(now int64) {
	for len(d.recent) > 0 && now-d.recent[0].last >= d.window {
		d.expired = d.recent[0].lastSeq
		d.recent[0] = generation{}
		d.recent = d.recent[1:]
	}
}

// load remembers the rows of the table above a seq.
func (d *dedupe) load(c *connection, after uint64) error {
	return c.raw(func(raw rawConnection) error {
		v := make([]driver.Value, 3)
		row := columns{values: v}
		err := raw.each(`SELECT seq, key, time FROM dedupe WHERE seq > ? ORDER BY seq`, v, func() error {
			seq, text, at := row.number(0), row.bytes(1), row.number(2)
			if len(text) != len(key{}) {
				row.fail(1, "no key")
			}
			if row.err == nil {
				d.remember(key(text), uint64(seq), at)
			}
			return row.err
		}, int64(after))
		return err
	})
}

// stored is the row of a key that find found; ok is false where it has
// expired.
func (d *dedupe) stored(raw rawConnection, seq uint64, now int64) (content [8]byte, ok bool, err error) {
	v := make([]driver.Value, 2)
	found, err := raw.one(`SELECT content, time FROM dedupe WHERE seq = ?`, v, int64(seq))
	if err != nil || !found {
		return content, false, err
	}
	row := columns{values: v}
	copy(content[:], row.bytes(0))
	at := row.number(1)
	return content, now-at < d.window, row.err
}

// sweep deletes at most `most` rows that have expired, inside a transaction.
// It returns what swept is once that is committed.
func (d *dedupe) sweep(raw rawConnection, most uint64) (swept uint64, err error) {
	if d.swept >= d.expired {
		return d.swept, nil
	}
	// Events that came without an id have no row: rows are counted, not seqs.
	swept = d.expired
	v := make([]driver.Value, 1)
	row := columns{values: v}
	full, err := raw.one(`SELECT seq FROM dedupe WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 1 OFFSET ?`, v,
		int64(d.swept), int64(d.expired), int64(most)-1)
	if full {
		swept = uint64(row.number(0))
	}
	if err = errors.Join(err, row.err); err != nil {
		return d.swept, err
	}
	return swept, raw.exec(`DELETE FROM dedupe WHERE seq > ? AND seq <= ?`, int64(d.swept), int64(swept))
}

// micros is a time as a column holds it.
func micros(t time.Time) int64 { return t.UnixMicro() }
