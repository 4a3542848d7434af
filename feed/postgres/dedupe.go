package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"gapless/feed"
)

// key is a hash of topic, source and id; 128 bits do not collide by accident.
type key [16]byte

// uuid is the type that the database holds 128 bits in.
func (k key) uuid() pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }

// fingerprint is what identifies one draft that came with an id.
type fingerprint struct {
	key     key
	content int64 // hash of type, data and ce
}

// fingerprints hashes the drafts, in their order; minted drafts have none.
func fingerprints(drafts []feed.Draft) []fingerprint {
	prints := make([]fingerprint, len(drafts))
	for i := range drafts {
		if d := &drafts[i]; !d.Minted {
			prints[i].key = key(hash([]byte(d.Topic), []byte(d.Source), []byte(d.ID))[:16])
			prints[i].content = int64(binary.BigEndian.Uint64(hash([]byte(d.Type), d.Data, d.CE)))
		}
	}
	return prints
}

// hash keeps its parts apart by their lengths.
func hash(parts ...[]byte) []byte {
	h := sha256.New()
	var n [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// stored is what is remembered of an id.
type stored struct {
	seq     uint64
	content int64
}

// selectUsed finds which of some keys were used within the window.
const selectUsed = `select key, content, seq, time from gapless.dedupe where key = any($1::uuid[])`

// used reads the answer of selectUsed. What is older than the window, and was
// not swept yet, does not count.
func used(rows pgx.Rows, since time.Time) (map[key]stored, error) {
	found := make(map[key]stored)
	defer rows.Close()
	for rows.Next() {
		var k key
		var s stored
		var seq int64
		var at time.Time
		if err := rows.Scan((*[16]byte)(&k), &s.content, &seq, &at); err != nil {
			return nil, err
		}
		if s.seq = uint64(seq); at.After(since) {
			found[k] = s
		}
	}
	return found, rows.Err()
}

// keysOf lists the keys of drafts with an id.
func keysOf(drafts []feed.Draft, prints []fingerprint, keys []pgtype.UUID) []pgtype.UUID {
	for i := range drafts {
		if !drafts[i].Minted {
			keys = append(keys, prints[i].key.uuid())
		}
	}
	return keys
}

// numbering gives seqs to batches behind a head, one batch after another.
type numbering struct {
	used  map[key]stored // in the log
	fresh map[key]stored // of the batches admitted before
	rows  rows
}

// admit numbers the drafts of a batch that are new and adds their rows. A
// batch that is refused leaves nothing behind.
func (n *numbering) admit(in *instance, drafts []feed.Draft, prints []fingerprint) ([]feed.Appended, error) {
	receipt := make([]feed.Appended, len(drafts))
	batch := make(map[key]stored)
	head := in.Head.Seq
	for i := range drafts {
		d := &drafts[i]
		if !d.Minted {
			first, ok := n.used[prints[i].key]
			if !ok {
				first, ok = n.fresh[prints[i].key]
			}
			if !ok {
				first, ok = batch[prints[i].key]
			}
			if ok && first.content != prints[i].content {
				return nil, &feed.Error{Code: feed.CodeIDConflict, Op: "append",
					Msg: fmt.Sprintf("event %d: id %q was used on topic %q with other content", i, d.ID, d.Topic)}
			}
			if ok {
				receipt[i] = feed.Appended{Seq: first.seq, ID: d.ID, Duplicate: true}
				continue
			}
			batch[prints[i].key] = stored{seq: head + 1, content: prints[i].content}
		}
		if head == maxSeq {
			return nil, unavailable("append", "the log has no numbers left", nil)
		}
		head++
		receipt[i] = feed.Appended{Seq: head, ID: d.ID}
	}
	for i, a := range receipt {
		if !a.Duplicate {
			n.rows.add(in, a.Seq, &drafts[i])
		}
	}
	for k, s := range batch {
		n.fresh[k] = s
	}
	return receipt, nil
}

// maxSeq is the last seq: a bigint has to hold the one that follows, too.
const maxSeq = 1<<63 - 2

// insertUsed remembers ids. One that was used before the window, and was not
// swept yet, is taken again.
const insertUsed = `insert into gapless.dedupe (key, content, seq, time)
	select k, c, s, $4::timestamptz from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as t (k, c, s)
	on conflict (key) do update set content = excluded.content, seq = excluded.seq, time = excluded.time`

// queue queues what stores all that was numbered.
func (n *numbering) queue(b *pgx.Batch, in *instance) {
	n.rows.queue(b, in)
	if len(n.fresh) == 0 {
		return
	}
	// Never behind the mark, from which on they are looked for to be forgotten:
	// it is ahead of a clock that was set back.
	now := in.Now
	if now.Before(in.Expired) {
		now = in.Expired
	}
	keys := make([]pgtype.UUID, 0, len(n.fresh))
	contents := make([]int64, 0, len(n.fresh))
	seqs := make([]int64, 0, len(n.fresh))
	for k, s := range n.fresh {
		keys = append(keys, k.uuid())
		contents = append(contents, s.content)
		seqs = append(seqs, int64(s.seq))
	}
	b.Queue(insertUsed, keys, contents, seqs, now)
}

// sweepUsed forgets ids that are older than the window, a bounded number at a
// time, and moves the mark up to which they are forgotten: so the index is not
// walked over what was deleted before.
const sweepUsed = `with gone as (
		delete from gapless.dedupe where key in (
			select key from gapless.dedupe where time >= $1::timestamptz and time < $2::timestamptz order by time limit $3::bigint)
		returning time
	)
	update gapless.instance i set expired = case when g.n < $3::bigint then $2::timestamptz else g.last end
	from (select count(*) as n, max(time) as last from gone) g where i.only_row
	returning i.expired, g.n`

// claim makes the log remember ids for as long as this process asks for, if no
// other asks for longer. A longer time holds until nobody has asked for it for
// as long, when no id is left that it was promised to; it then falls to the
// longest that anybody asked for meanwhile. The row's transaction writes it.
func (s *Store) claim(in *instance) {
	own, silent := s.cfg.DedupeWindow.Truncate(time.Microsecond), in.Now.Sub(in.Claimed)
	switch {
	case own > in.Window, own == in.Window && silent > own/20:
		in.Window, in.Claimed, in.Asked = own, in.Now, 0
	case own < in.Window && silent > in.Window+in.Window/10:
		in.Window, in.Claimed, in.Asked = max(own, in.Asked), in.Now, own
	case own < in.Window:
		in.Asked = max(in.Asked, own)
	}
}

// forgotten is the time before which an id was used too long ago to count.
func (s *Store) forgotten(in *instance) time.Time {
	return in.Now.Add(-max(in.Window, s.cfg.DedupeWindow))
}

// dueToSweep reports whether an append should forget ids.
func (s *Store) dueToSweep(in *instance) bool {
	return s.forgotten(in).Sub(in.Expired) >= min(s.cfg.DedupeWindow/20, time.Second)
}

// sweepArgs are the arguments of sweepUsed, for at most so many ids.
func (s *Store) sweepArgs(in *instance, most int64) []any {
	return []any{in.Expired, s.forgotten(in), most}
}

// swept takes up the answer of sweepUsed, and says how many ids went.
func (in *instance) swept(row pgx.Row) (ids int64, err error) {
	err = row.Scan(&in.Expired, &ids)
	in.Expired = in.Expired.UTC()
	return ids, err
}
