package feedtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func (k *keeper) audit(before uint64, limit int) []feed.AuditEntry {
	k.Helper()
	list, err := k.store.Audit(k.ctx, before, limit)
	if err != nil {
		k.Fatalf("audit: %v", err)
	}
	return list
}

func (k *keeper) record(entry feed.AuditEntry) {
	k.Helper()
	if err := k.store.RecordAudit(k.ctx, entry); err != nil {
		k.Fatalf("record audit: %v", err)
	}
}

func (s *suite) testAudit(t *testing.T) {
	t.Run("an entry comes back as it was recorded", func(t *testing.T) {
		cfg := Config{}
		clock := s.clockFor(&cfg)
		k := s.openStore(t, consumers, cfg)
		for _, entry := range []feed.AuditEntry{
			{Actor: "ann", Action: feed.ActionBackup, Detail: json.RawMessage(`{}`)},
			{Seq: 1 << 40, Time: time.Unix(1, 0), Actor: "", Action: "x", Detail: json.RawMessage(`{"n":123456789012345678901234567890,"f":1.50}`)},
			{Actor: "ü'\"\\%\n", Action: "a.b:c", Detail: json.RawMessage(`{"text":"a\"b\u2028<&>","list":[1,null,{"deep":{}}],"big":"` + strings.Repeat("x", 100_000) + `"}`)},
		} {
			clock.step(time.Second)
			k.record(entry)
			got := k.audit(0, 1)[0]
			if got.Actor != entry.Actor || got.Action != entry.Action || !sameJSON(got.Detail, entry.Detail) {
				t.Errorf("it is %.300v, was %.300v", got, entry)
			}
			if got.Seq == 0 || got.Seq == entry.Seq {
				t.Errorf("its seq is %d, want the store's own", got.Seq)
			}
			k.wantStamp("time", got.Time, clock)
		}
	})

	t.Run("its detail is an object", func(t *testing.T) {
		k := s.openStore(t, consumers, Config{})
		for _, empty := range []json.RawMessage{nil, {}, json.RawMessage("{}"), json.RawMessage(" {\n}\t")} {
			k.record(feed.AuditEntry{Actor: "a", Action: "b", Detail: empty})
			if got := k.audit(0, 1)[0].Detail; !sameJSON(got, json.RawMessage("{}")) {
				t.Errorf("detail %q became %q", empty, got)
			}
		}
		for _, detail := range []string{"null", "[]", `"text"`, "1", "true", " ", "{", `{"a":1}x`, `{"a":1}{}`, `{"a":}`, `{a:1}`, "{\"a\":\"\xff\"}"} {
			k.refused(fmt.Sprintf("detail %q", detail), feed.CodeInvalid, func() error {
				return k.store.RecordAudit(k.ctx, feed.AuditEntry{Actor: "a", Action: "b", Detail: json.RawMessage(detail)})
			})
		}
	})

	t.Run("newest first, page by page", func(t *testing.T) {
		const entries = 60
		k := s.openStore(t, consumers, Config{})
		own := len(k.audit(0, 100)) // the store's own, such as its set-up
		for i := range entries {
			k.record(feed.AuditEntry{Actor: "a", Action: fmt.Sprint(i), Detail: json.RawMessage(`{}`)})
		}
		all := k.audit(0, 1000)
		if len(all) != own+entries {
			t.Fatalf("%d entries, want %d", len(all), own+entries)
		}
		for i, entry := range all[:entries] {
			if want := fmt.Sprint(entries - 1 - i); entry.Action != want {
				t.Fatalf("entry %d is %q, want %q", i, entry.Action, want)
			}
			if i > 0 && (entry.Seq >= all[i-1].Seq || entry.Time.After(all[i-1].Time)) {
				t.Errorf("%d, %v comes before %d, %v", all[i-1].Seq, all[i-1].Time, entry.Seq, entry.Time)
			}
		}
		for _, size := range []int{1, 7, entries, 1000} {
			var paged []feed.AuditEntry
			for before := uint64(0); ; before = paged[len(paged)-1].Seq {
				page := k.audit(before, size)
				if len(page) > size {
					t.Fatalf("%d entries in a page of %d", len(page), size)
				}
				if paged = append(paged, page...); len(page) == 0 || len(paged) > len(all) {
					break
				}
			}
			if !reflect.DeepEqual(paged, all) {
				t.Errorf("in pages of %d: %d entries, want the %d of one page", size, len(paged), len(all))
			}
		}
		if page := k.audit(all[len(all)-1].Seq, 10); len(page) != 0 {
			t.Errorf("below the oldest: %+v", page)
		}
		if page := k.audit(1<<63-1, 2); len(page) != 2 || page[0].Seq != all[0].Seq {
			t.Errorf("below a seq far above: %+v, want the newest", page)
		}
		if page := k.audit(0, 0); len(page) != 0 {
			t.Errorf("at most none: %+v", page)
		}
	})

	t.Run("entries recorded at once all stand", func(t *testing.T) {
		const workers, each = 8, 10
		k := s.openStore(t, consumers, Config{})
		own := len(k.audit(0, 1000))
		together(workers, func(i int) {
			for n := range each {
				entry := feed.AuditEntry{Actor: fmt.Sprint(i), Action: fmt.Sprint(n), Detail: json.RawMessage(`{}`)}
				if err := k.store.RecordAudit(k.ctx, entry); err != nil {
					t.Errorf("record audit: %v", err)
				}
			}
		})
		all := k.audit(0, 1000)
		if len(all) != own+workers*each {
			t.Errorf("%d entries, want %d", len(all), own+workers*each)
		}
		next := make(map[string]int)
		for i := len(all) - 1; i >= 0; i-- {
			if i < len(all)-1 && all[i].Seq <= all[i+1].Seq {
				t.Errorf("seq %d follows %d", all[i].Seq, all[i+1].Seq)
			}
			if len(all)-1-i < own {
				continue
			}
			if want := fmt.Sprint(next[all[i].Actor]); all[i].Action != want {
				t.Errorf("entry %q of worker %s, want %q", all[i].Action, all[i].Actor, want)
			}
			next[all[i].Actor]++
		}
	})
}

// sameJSON compares two texts by what they say, numbers by their digits.
func sameJSON(a, b json.RawMessage) bool {
	decode := func(text json.RawMessage) (v any) {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return err
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}
