//go:build linux && e2e

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"gapless/feed"
)

func TestPoisonIsParkedAndNothingWaitsForIt(t *testing.T) {
	url := database(t)
	var log lockedBuffer
	s := open(t, url, quiet, func(cfg *Config) { cfg.Logger = zerolog.New(&log) })
	conn := dial(t, url)
	put := func(topic, typ, data string, more ...any) {
		t.Helper()
		args := append([]any{topic, typ, data}, more...)
		places := []string{"$1::text", "$2::text", "$3::json", "$4::text", "$5::text", "$6::json"}
		exec(t, conn, "select gapless.publish("+strings.Join(places[:len(args)], ", ")+")", args...)
	}
	giant := `"` + strings.Repeat("g", feed.MaxDataBytes+1) + `"`
	put("t", "x", `"first"`)
	put("bad topic", "x", `1`)
	put("t", "bad type", `1`)
	put("t", "server.live", `1`)
	put("gapless.status", "x", `1`)
	put("t", "x", giant)
	put("t", "x", `"\ud800"`)
	put("t", "x", `1`, strings.Repeat("i", 129))
	put("t", "x", `"taken"`, "id-1")
	put("t", "x", `"other content"`, "id-1")
	put("t", "x", `"taken"`, "id-1")
	put("t", "x", `1`, nil, nil, `["no", "object"]`)
	put("t", "x", `"last"`)
	// More white space than is looked at.
	exec(t, conn, "insert into gapless.outbox (topic, data) values ('t', (repeat(' ', $1) || '1')::json)", outboxGiant)
	moveAll(t, s)
	wantPayloads(t, s, `"first"`, `"taken"`, `"last"`)

	rows, err := conn.Query(t.Context(), "select number || ' ' || code from gapless.outbox_parked order by number")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"2 invalid", "3 invalid", "4 invalid", "5 invalid", "6 too_large", "7 invalid", "8 invalid", "10 id_conflict", "12 invalid", "14 too_large"}
	if !slices.Equal(got, want) {
		t.Errorf("parked: %q, want %q", got, want)
	}
	if n := scan[int](t, conn, "select count(*) from gapless.outbox_parked where reason = ''"); n != 0 {
		t.Errorf("%d are parked without a reason", n)
	}
	if got := s.OutboxStats(); got != (feed.OutboxStats{Moved: 4, Parked: 10}) {
		t.Errorf("counted: %+v", got)
	}

	if n := strings.Count(log.String(), "it is parked"); n != 10 {
		t.Errorf("the log speaks of %d parked rows, want each of the 10 once:\n%s", n, log.String())
	}

	t.Run("and given another try", func(t *testing.T) {
		exec(t, conn, "delete from gapless.outbox_parked where number = 14") // slow to copy
		exec(t, conn, "update gapless.outbox_parked set topic = 'mended' where number = 2")
		if n := scan[int](t, conn, "select gapless.requeue_parked(2)"); n != 1 {
			t.Errorf("%d rows were requeued, want 1", n)
		}
		moveAll(t, s)
		wantPayloads(t, s, `"first"`, `"taken"`, `"last"`, "1")
		if n := scan[int](t, conn, "select gapless.requeue_parked()"); n != 8 {
			t.Errorf("%d rows were requeued, want the other 8", n)
		}
		moveAll(t, s)
		if n := scan[int](t, conn, "select count(*) from gapless.outbox_parked"); n != 8 {
			t.Errorf("%d rows are parked again, want 8", n)
		}
		wantPayloads(t, s, `"first"`, `"taken"`, `"last"`, "1")
	})
}

func TestIDsAreSharedWithOtherPublishers(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	conn := dial(t, url)
	draft := feed.Draft{ID: "a", Type: "x", Topic: "t", Data: json.RawMessage(`{"n":1}`)}
	if _, err := s.Append(t.Context(), []feed.Draft{draft}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `select gapless.publish('t', 'x', '{ "n": 1 }', 'a')`)
	exec(t, conn, `select gapless.publish('t', 'x', '{"n":2}', 'b')`)
	moveAll(t, s)
	draft.ID, draft.Data = "b", json.RawMessage(`{"n":2}`)
	receipt, err := s.Append(t.Context(), []feed.Draft{draft})
	if err != nil || !receipt.Events[0].Duplicate || receipt.Events[0].Seq != 2 {
		t.Errorf("a repeat of a moved row: %+v, %v", receipt, err)
	}
	wantPayloads(t, s, `{"n":1}`, `{"n":2}`)
}

// A row that is passed over while somebody holds it would come after later
// rows of its own transaction.
func TestARowThatSomebodyHoldsIsWaitedForNotPassed(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	conn := dial(t, url)
	exec(t, conn, "select gapless.publish('t', 'x', n::text) from generate_series(1, 3) n")
	exec(t, conn, "begin")
	exec(t, conn, "select from gapless.outbox where data::text = '2' for update")
	began := time.Now()
	if _, err := s.moveRound(t.Context()); feed.CodeOf(err) != feed.CodeUnavailable || err == nil {
		t.Errorf("a round over a row that is held: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it kept the log from publishers for %v", took)
	}
	wantPayloads(t, s)
	exec(t, conn, "rollback")
	moveAll(t, s)
	wantPayloads(t, s, "1", "2", "3")
}

func TestRoundsAreBounded(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	conn := dial(t, url)
	exec(t, conn, "select gapless.publish('t', 'x', n::text) from generate_series(1, $1::int) n", 2*outboxRows+1)
	for i, want := range []int{outboxRows, 2 * outboxRows, 2*outboxRows + 1} {
		more, err := s.moveRound(t.Context())
		if n := len(events(t, s)); err != nil || more != (i < 2) || n != want {
			t.Fatalf("after round %d: %d events, more: %v, %v", i+1, n, more, err)
		}
	}
	for i, ev := range events(t, s) {
		if string(ev.Data) != fmt.Sprint(i+1) {
			t.Fatalf("event %d is %s", i+1, ev.Data)
		}
	}
	// 3 MiB each: two make a round and a third closes it.
	exec(t, conn, "select gapless.publish('t', 'x', to_json(repeat('x', 3 << 20))) from generate_series(1, 4)")
	more, err := s.moveRound(t.Context())
	if left := scan[int](t, conn, "select count(*) from gapless.outbox"); err != nil || !more || left != 1 {
		t.Errorf("%d rows are left, more: %v, %v", left, more, err)
	}
}

func TestRetentionHoldsWhereOnlyTheOutboxPublishes(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet, func(cfg *Config) { cfg.Retention = feed.Retention{Events: 10} })
	conn := dial(t, url)
	for range 4 {
		exec(t, conn, "select gapless.publish('t', 'x', n::text) from generate_series(1, 25) n")
		moveAll(t, s)
	}
	list := events(t, s)
	if len(list) != 10 || list[0].Seq != 91 {
		t.Errorf("the log holds %d events from %d on, want 10 from 91 on", len(list), list[0].Seq)
	}
	if err := s.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// What was published before the seal is moved at the new place; what comes
// after it is refused, since the copy would lack it.
func TestASealedLogLeavesTheOutboxAlone(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	conn := dial(t, url)
	exec(t, conn, "select gapless.publish('t', 'x', '1')")
	exec(t, conn, "select gapless.publish('bad topic', 'x', '2')")
	m, err := s.Backup(t.Context(), t.TempDir(), feed.BackupOptions{Final: true, Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"select gapless.publish('t', 'x', '3')", "select gapless.publish('t', 'x', jsonb '3')", "insert into gapless.outbox (data) values ('3')",
		"select gapless.requeue_parked()",
	} {
		_, err := conn.Exec(t.Context(), statement)
		if server := (*pgconn.PgError)(nil); !errors.As(err, &server) || server.Code != "55000" || !strings.Contains(server.Message, "sealed") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if _, err := s.moveRound(t.Context()); feed.CodeOf(err) != feed.CodeSealed {
		t.Errorf("a round on a sealed log: %v", err)
	}
	if n := scan[int](t, conn, "select count(*) from gapless.outbox"); n != 2 {
		t.Errorf("%d rows are left, want 2", n)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	moved := copied(t, url)
	s = open(t, moved, quiet)
	if _, err := s.Relocate(t.Context(), m, "test"); err != nil {
		t.Fatal(err)
	}
	exec(t, dial(t, moved), "select gapless.publish('t', 'x', '3')")
	moveAll(t, s)
	wantPayloads(t, s, "1", "3")
}

// A row whose transaction is open is in no copy: the seal waits for it, and
// gives up soon.
func TestASealWaitsForTransactionsThatPublish(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	writer, look := dial(t, url), dial(t, url)
	exec(t, writer, "begin")
	exec(t, writer, "select gapless.publish('t', 'x', '1')")
	if _, err := s.Backup(t.Context(), t.TempDir(), feed.BackupOptions{Final: true, Actor: "test"}); feed.CodeOf(err) != feed.CodeConflict || !strings.Contains(err.Error(), "outbox") {
		t.Errorf("beside an open transaction: %v", err)
	}
	if status, err := s.RestoreStatus(t.Context()); err != nil || status.Sealed {
		t.Errorf("the status is %+v, %v", status, err)
	}
	sealed := make(chan error, 1)
	go func() {
		_, err := s.Backup(patient(t), t.TempDir(), feed.BackupOptions{Final: true, Actor: "test"})
		sealed <- err
	}()
	eventually(t, "the seal waits", func() bool { return scan[int](t, look, waitingForLocks) == 1 })
	late := dial(t, url)
	refused := make(chan error, 1)
	go func() {
		_, err := late.Exec(patient(t), "select gapless.publish('t', 'x', '2')")
		refused <- err
	}()
	eventually(t, "a later one waits for it", func() bool { return scan[int](t, look, waitingForLocks) == 2 })
	exec(t, writer, "commit")
	if err := <-sealed; err != nil {
		t.Error(err)
	}
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("published after the seal: %v", err)
	}
	if n := scan[int](t, look, "select count(*) from gapless.outbox"); n != 1 {
		t.Errorf("%d rows are in the copy, want 1", n)
	}
}

func TestTheMoverSaysOnceWhyItWaits(t *testing.T) {
	url := database(t)
	conn := dial(t, url)
	exec(t, conn, "select gapless.publish('t', 'x', '1')")
	if _, err := open(t, url, quiet).Backup(t.Context(), t.TempDir(), feed.BackupOptions{Final: true}); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	s := open(t, url, func(cfg *Config) { cfg.OutboxPoll, cfg.Logger = time.Millisecond, zerolog.New(&log) })
	eventually(t, "it says so", func() bool { return strings.Contains(log.String(), "the outbox waits") })
	// It tries again, and has nothing new to say.
	if moved := s.OutboxStats().Moved; moved != 0 {
		t.Errorf("%d rows were moved into a sealed log", moved)
	}
	if _, err := s.Finalize(t.Context(), feed.FinalizeOptions{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the row is moved", func() bool { return s.OutboxStats().Moved == 1 })
	eventually(t, "it says so", func() bool { return strings.Contains(log.String(), "the outbox is moved again") })
	if n := strings.Count(log.String(), "the outbox waits"); n != 1 {
		t.Errorf("it says %d times that it waits", n)
	}
}

func TestTheMoverWakesReadersOfEveryGateway(t *testing.T) {
	url := database(t)
	s := open(t, url, func(cfg *Config) { cfg.OutboxPoll = time.Millisecond })
	other := open(t, url, quiet)
	page, err := other.Read(t.Context(), 0, feed.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	woken := make(chan error, 2)
	for _, s := range []*Store{s, other} {
		go func() { woken <- s.Wait(ctx, feed.Cursor{Epoch: page.Epoch, Position: page.Head}) }()
	}
	exec(t, dial(t, url), "select gapless.publish('t', 'x', '1')")
	if err := errors.Join(<-woken, <-woken); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both read it", func() bool { return len(events(t, s)) == 1 && len(events(t, other)) == 1 })
}
