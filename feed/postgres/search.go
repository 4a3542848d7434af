package postgres

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// Bounds of a search's steps.
const (
	// windowEvents is how many of the newest events are looked at, one by one,
	// before the topics of a pattern are looked up.
	windowEvents = 4096
	// walkMost is how many events a step of a walk looks at.
	walkMost = 65536
	// manyTopics can always be compared, whatever the scan limit.
	manyTopics = 10_000
	// stepRows is about how many candidates a step over topics fetches.
	stepRows = 16384
)

// Search implements [feed.Log]: one snapshot, and a number of round trips
// that grows with the logarithm of what it has to look at.
func (s *Store) Search(ctx context.Context, search feed.Search) (feed.Found, error) {
	var found feed.Found
	err := s.look(ctx, "search", func(ctx context.Context, conn *pgx.Conn) (in instance, err error) {
		err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if in, err = loadInstance(tx.QueryRow(ctx, readInstance)); err != nil {
				return err
			}
			f := finder{tx: tx, search: search, in: &in, before: in.Head.Seq + 1}
			found, err = f.find(ctx)
			return err
		})
		return in, err
	})
	if err != nil {
		return feed.Found{}, err
	}
	return found, nil
}

// finder is one search inside its snapshot.
type finder struct {
	tx     pgx.Tx
	search feed.Search
	in     *instance

	before  uint64 // candidates from here on were examined
	scanned int    // candidates examined
	matched int
	last    uint64 // seq of the oldest match; 0: none
	cut     bool   // the scan limit was reached
}

// done reports whether no more candidates are wanted.
func (f *finder) done() bool {
	return f.cut || f.matched >= f.search.N || f.before <= f.in.Oldest
}

// room is how many candidates may still be examined.
func (f *finder) room() int {
	if f.search.ScanLimit <= 0 {
		return math.MaxInt
	}
	return f.search.ScanLimit - f.scanned
}

// examine takes a candidate. It reports false where the scan limit, or the
// number asked for, was reached before it.
func (f *finder) examine(c candidate) bool {
	if f.matched >= f.search.N {
		return false
	}
	if f.room() <= 0 {
		f.cut = true
		return false
	}
	f.scanned++
	f.before = c.seq
	if f.search.Filter.Match(c.topic, c.typ) {
		f.matched++
		f.last = c.seq
	}
	return true
}

// candidate is an event that may match.
type candidate struct {
	seq        uint64
	topic, typ string
}

func (f *finder) find(ctx context.Context) (feed.Found, error) {
	found := feed.Found{Bounds: f.in.bounds(), After: f.in.Head}
	if f.search.N <= 0 || f.done() {
		return found, nil
	}
	var err error
	if topics, ok := f.search.Filter.ExactTopics(); ok {
		err = f.findTopics(ctx, topics)
	} else {
		err = f.findPatterns(ctx)
	}
	if err != nil {
		return feed.Found{}, err
	}
	found.Truncated = f.cut
	if f.last > 0 {
		found.After, err = f.position(ctx, f.last-1)
	}
	return found, err
}

// position returns the place before an event of the log.
func (f *finder) position(ctx context.Context, seq uint64) (feed.Position, error) {
	var held *string
	if err := f.tx.QueryRow(ctx, selectFence, int64(seq)).Scan(&held); err != nil {
		return feed.Position{}, err
	}
	fence, err := f.in.fenceAt("search", seq, held)
	return feed.Position{Seq: seq, Fence: fence}, err
}

// findPatterns looks at the newest events, which is all that it takes where
// many match; then at the topics that match, by their index; or, where these
// are too many, at every event.
func (f *finder) findPatterns(ctx context.Context) error {
	filter := f.search.Filter
	if filter.AllTopics() {
		return f.walk(ctx)
	}
	if err := f.window(ctx); err != nil || f.done() {
		return err
	}
	most := math.MaxInt - 1
	if f.search.ScanLimit > 0 {
		most = max(f.search.ScanLimit, manyTopics)
	}
	topics, err := f.matching(ctx, most)
	if err != nil {
		return err
	}
	if len(topics) > most {
		return f.walk(ctx)
	}
	topics = slices.DeleteFunc(topics, func(topic string) bool { return !filter.MatchTopic(topic) })
	return f.findTopics(ctx, topics)
}

const newestEvents = `select seq, topic, type from gapless.events where seq < $1::bigint order by seq desc limit $2::bigint`

// window examines those of the newest events whose topics match.
func (f *finder) window(ctx context.Context) error {
	events, err := f.candidates(ctx, newestEvents, int64(f.before), int64(windowEvents))
	if err != nil {
		return err
	}
	for _, c := range events {
		if f.search.Filter.MatchTopic(c.topic) && !f.examine(c) {
			return nil
		}
	}
	if len(events) > 0 {
		f.before = events[len(events)-1].seq
	}
	return nil
}

// walk examines every event, newest first.
func (f *finder) walk(ctx context.Context) error {
	for n := max(f.search.N, 64); !f.done(); n *= 4 {
		n = min(n, walkMost)
		fetch := n
		if room := max(f.room(), 0); room < fetch {
			fetch = room + 1 // one more shows that the limit cut the search short
		}
		events, err := f.candidates(ctx, newestEvents, int64(f.before), int64(fetch))
		if err != nil || len(events) == 0 {
			return err
		}
		for _, c := range events {
			if !f.examine(c) {
				break
			}
		}
	}
	return nil
}

// topicsBetween lists the topics in a range, one probe of the index a topic.
const topicsBetween = `with recursive t as (
		(select topic from gapless.events where topic >= $1::text and topic < $2::text order by topic limit 1)
		union all
		select (select e.topic from gapless.events e where e.topic > t.topic and e.topic < $2::text order by e.topic limit 1) from t where t.topic is not null
	)
	select topic from t where topic is not null limit $3::bigint`

// matching lists topics of the log among which are all that match: more than
// `most` where there are more. Only the part of the index that begins as a
// pattern does is looked at.
func (f *finder) matching(ctx context.Context, most int) (topics []string, err error) {
	limit := int64(most) + 1
	for _, r := range ranges(f.search.Filter.Topics()) {
		rows, err := f.tx.Query(ctx, topicsBetween, r.from, r.to, limit-int64(len(topics)))
		if err != nil {
			return nil, err
		}
		more, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		if topics = append(topics, more...); len(topics) > most {
			break
		}
	}
	return topics, nil
}

// span is a range of topics: from ≤ topic < to.
type span struct{ from, to string }

// ranges returns where in the order of topics those that match any of some
// patterns can lie, without overlaps. "a.b.*" and "a.b.>" lie from "a.b." to
// "a.b/", since "/" follows "." and is in no topic.
func ranges(patterns []string) []span {
	spans := make([]span, len(patterns))
	for i, p := range patterns {
		if end := strings.IndexAny(p, "*>"); end < 0 {
			spans[i] = span{p, p + "\x01"}
		} else if end == 0 {
			spans[i] = span{"", "\x7f"}
		} else {
			spans[i] = span{p[:end], p[:end-1] + "/"}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return strings.Compare(a.from, b.from) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && s.from < merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// newestOfTopics fetches the newest events of each topic, each topic's in
// their order.
const newestOfTopics = `select e.seq, t.topic, e.type from unnest($1::text[]) as t (topic) cross join lateral (
		select seq, type from gapless.events where topic = t.topic and seq < $2::bigint order by seq desc limit $3::bigint) e`

// findTopics examines the events on some topics, newest first. Each step
// fetches some of each topic; below the oldest fetched of a topic that may
// have more, the others' are for the next step.
func (f *finder) findTopics(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	each := max(16, stepRows/len(topics))
	if each > f.search.N-f.matched {
		each = f.search.N - f.matched
	}
	for ; !f.done(); each *= 2 {
		if room := f.room(); each > room {
			each = max(room, 0) + 1
		}
		events, err := f.candidates(ctx, newestOfTopics, topics, int64(f.before), int64(each))
		if err != nil {
			return err
		}
		floor, full := uint64(0), make(map[string]int, len(topics))
		for _, c := range events {
			if full[c.topic]++; full[c.topic] == each {
				floor = max(floor, c.seq)
			}
		}
		slices.SortFunc(events, func(a, b candidate) int {
			if a.seq > b.seq {
				return -1
			}
			return 1
		})
		for _, c := range events {
			if c.seq < floor || !f.examine(c) {
				break
			}
		}
		if floor == 0 {
			return nil // there are no more
		}
	}
	return nil
}

// candidates runs a query of seqs, topics and types.
func (f *finder) candidates(ctx context.Context, sql string, args ...any) ([]candidate, error) {
	rows, err := f.tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []candidate
	var seq int64
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&seq, &c.topic, &c.typ); err != nil {
			return nil, err
		}
		c.seq = uint64(seq)
		list = append(list, c)
	}
	return list, rows.Err()
}
