//go:build linux && e2e

package postgres

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/postgres/pgtest"
)

// branch is a log that a restore takes back: events 1 to shared are in the
// copy, those up to lost were acknowledged after it was made.
type branch struct {
	cursors []feed.Cursor // of events 1 to lost; index 0 is unused
	shared  uint64
}

const (
	sharedEvents = 10
	lostEvents   = 6
)

// grow appends n events, one a batch, and returns their cursors.
func grow(t *testing.T, s *Store, n int) (list []feed.Cursor) {
	t.Helper()
	for range n {
		receipt, err := s.Append(t.Context(), []feed.Draft{{ID: feed.NewFence().String(), Minted: true, Type: "x", Topic: "t", Data: json.RawMessage("1")}})
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		page, err := s.Read(t.Context(), receipt.Events[0].Seq, feed.Limit{})
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		list = append(list, feed.Cursor{Epoch: receipt.Epoch, Position: feed.Position{Seq: receipt.Events[0].Seq, Fence: page.Anchor}})
	}
	return list
}

// begin fills a new log with what the copy will hold, and two consumers.
func begin(t *testing.T, s *Store) *branch {
	t.Helper()
	b := &branch{cursors: make([]feed.Cursor, 1), shared: sharedEvents}
	b.cursors = append(b.cursors, grow(t, s, sharedEvents)...)
	for name, at := range map[string]feed.Cursor{"behind": b.cursors[4], "busy": b.cursors[9]} {
		if err := s.CreateConsumer(t.Context(), feed.Consumer{Name: name, Cursor: at}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// goOn is what happens after the copy was made, and is lost with the restore.
func (b *branch) goOn(t *testing.T, s *Store) {
	t.Helper()
	b.cursors = append(b.cursors, grow(t, s, lostEvents)...)
}

// regrown checks the restored log once it has grown past the lost branch's
// head: no cursor of that branch is good, those of the shared past mean what
// they meant. It says whether they are of the running epoch.
func (b *branch) regrown(t *testing.T, s *Store, sameEpoch bool) {
	t.Helper()
	grow(t, s, lostEvents+3)
	for seq := uint64(1); seq < uint64(len(b.cursors)); seq++ {
		at := b.cursors[seq]
		page, err := s.Read(t.Context(), seq, feed.Limit{})
		if err != nil {
			t.Fatal(err)
		}
		if same := page.Epoch == at.Epoch; same != sameEpoch {
			t.Errorf("the epoch is %s, was %s", page.Epoch, at.Epoch)
		}
		switch shared := seq <= b.shared; {
		case shared && page.Anchor != at.Fence:
			t.Errorf("event %d, of the shared past, has the fence %s, had %s", seq, page.Anchor, at.Fence)
		case !shared && page.Anchor == at.Fence:
			t.Errorf("event %d was lost, and its number means the same event again", seq)
		case !shared && !page.Anchor.Known():
			t.Errorf("event %d has no fence", seq)
		}
	}
	if err := s.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func databaseOn(t *testing.T, c *pgtest.Cluster) string {
	t.Helper()
	url := c.Database(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return url
}

// wantShut checks that the guard keeps a store shut and says why; what an
// operator needs works.
func wantShut(t *testing.T, s *Store, about string) feed.RestoreStatus {
	t.Helper()
	ctx := patient(t)
	_, err := s.Append(ctx, []feed.Draft{draft("a", 1)})
	for call, err := range map[string]error{
		"append": err,
		"read":   func() error { _, err := s.Read(ctx, 0, feed.Limit{Events: 1}); return err }(),
		"create": s.CreateConsumer(ctx, feed.Consumer{Name: "new"}),
		"delete": s.DeleteConsumer(ctx, "behind"),
		"audit":  s.RecordAudit(ctx, feed.AuditEntry{Action: "x"}),
		"outbox": func() error { _, err := s.moveRound(ctx); return err }(),
	} {
		if feed.CodeOf(err) != feed.CodeRestoreNotFinalized || !strings.Contains(err.Error(), "gapless restore status") || !strings.Contains(err.Error(), about) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if list, err := s.Consumers(ctx); err != nil || len(list) != 2 {
		t.Errorf("listing the consumers: %v, %v", list, err)
	}
	status, err := s.RestoreStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if status.Finalized || !strings.Contains(status.Cause, about) || status.Expected == status.Found || status.HeadSeq != sharedEvents {
		t.Errorf("the status is %+v", status)
	}
	return status
}

// finalize declares the restore done, after a look.
func finalize(t *testing.T, s *Store) feed.Finalized {
	t.Helper()
	dry, err := s.Finalize(t.Context(), feed.FinalizeOptions{Actor: "ann", DryRun: true})
	if err != nil || dry.NewEpoch != "" || len(dry.Skips) != 2 {
		t.Fatalf("a dry run: %+v, %v", dry, err)
	}
	done, err := s.Finalize(t.Context(), feed.FinalizeOptions{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if status, err := s.RestoreStatus(t.Context()); err != nil || !status.Finalized || status.Cause != "" || status.Expected != status.Found {
		t.Errorf("after it the status is %+v, %v", status, err)
	}
	c, err := s.Consumer(t.Context(), "behind")
	if err != nil || c.Cursor.Epoch != done.NewEpoch || c.Cursor.Seq != sharedEvents || c.ResetFrom.Seq != 4 {
		t.Errorf("after it a consumer is %+v, %v", c, err)
	}
	return done
}

// wantContent checks that the guard has no objection.
func wantContent(t *testing.T, s *Store) {
	t.Helper()
	status, err := s.RestoreStatus(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	if !status.Finalized || status.Expected != status.Found {
		t.Errorf("the guard sees %+v", status)
	}
}

var unsynced = []string{"fsync=off", "full_page_writes=off"}

// copied is a copy of a database of the shared server, beside it.
func copied(t *testing.T, url string) string {
	t.Helper()
	return sharedCluster(t).Database(t, url[strings.LastIndex(url, "/")+1:strings.Index(url, "?")])
}

// dump copies a database with pg_dump and returns the file.
func dump(t *testing.T, c *pgtest.Cluster, url string) string {
	t.Helper()
	file := filepath.Join(filepath.Dir(c.Dir), "gapless.dump")
	c.Run(t, pgtest.Binary(t, "pg_dump"), "--format=custom", "--schema=gapless", "--file="+file, url)
	return file
}

func TestADumpRestoredIntoAnotherClusterIsRefusedUntilFinalized(t *testing.T) {
	from := sharedCluster(t)
	url := database(t)
	s := open(t, url, quiet)
	b := begin(t, s)
	file := dump(t, from, url)
	b.goOn(t, s)

	to := pgtest.New(t, unsynced...)
	restored := to.Database(t)
	to.Run(t, pgtest.Binary(t, "pg_restore"), "--exit-on-error", "--single-transaction", "--dbname="+restored, file)
	s = open(t, restored)
	status := wantShut(t, s, "another database cluster")
	if got := status.Skips[0]; got.Name != "behind" || got.FirstSeq != 5 || got.LastSeq != sharedEvents || got.Lost {
		t.Errorf("it would skip %+v", got)
	}
	// Others notice by themselves what one operator did.
	others := []*Store{open(t, restored), open(t, restored)}
	for _, other := range others {
		wantShut(t, other, "another database cluster")
	}
	done := finalize(t, s)
	for _, other := range others {
		receipt, err := other.Append(t.Context(), []feed.Draft{draft(feed.NewFence().String(), 1)})
		if err != nil || receipt.Epoch != done.NewEpoch {
			t.Errorf("another gateway's append: %+v, %v", receipt, err)
		}
	}
	b.regrown(t, s, false)
}

func TestADumpRestoredIntoAnotherDatabaseIsRefusedUntilFinalized(t *testing.T) {
	c := sharedCluster(t)
	url := database(t)
	s := open(t, url, quiet)
	b := begin(t, s)
	file := dump(t, c, url)
	b.goOn(t, s)
	restored := c.Database(t)
	c.Run(t, pgtest.Binary(t, "pg_restore"), "--exit-on-error", "--single-transaction", "--dbname="+restored, file)
	s = open(t, restored)
	wantShut(t, s, "another database of this cluster")
	finalize(t, s)
	b.regrown(t, s, false)
}

// The same name, and another database: the stores ran all the while.
func TestADatabaseThatIsMadeAnewUnderARunningStoreIsRefused(t *testing.T) {
	c := sharedCluster(t)
	url := database(t)
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	s := open(t, url)
	b := begin(t, s)
	file := dump(t, c, url)
	b.goOn(t, s)
	c.Exec(t, "postgres", "drop database "+name+" with (force)")
	c.Exec(t, "postgres", "create database "+name)
	c.Run(t, pgtest.Binary(t, "pg_restore"), "--exit-on-error", "--single-transaction", "--dbname="+name, file)
	eventually(t, "it is connected", func() bool {
		_, err := s.Read(t.Context(), 0, feed.Limit{})
		return feed.CodeOf(err) != feed.CodeUnavailable
	})
	wantShut(t, s, "another database of this cluster")
	finalize(t, s)
	b.regrown(t, s, false)
}

func TestARecoveryToAPointInTimeIsRefusedUntilFinalized(t *testing.T) {
	archive, err := os.MkdirTemp("", "wal")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(archive) })
	if err := os.Chmod(archive, 0o777); err != nil { //nolint:gosec // the server runs as another user
		t.Fatal(err)
	}
	from := pgtest.New(t, append(unsynced, "archive_mode=on", "archive_command='cp %p "+archive+"/%f'")...)
	url := databaseOn(t, from)
	s := open(t, url, quiet)
	b := begin(t, s)

	to := pgtest.Unstarted(t)
	from.Run(t, pgtest.Binary(t, "pg_basebackup"), "--pgdata="+to.Dir, "--checkpoint=fast", "--no-sync")
	from.Exec(t, pgtest.Superuser, "select pg_create_restore_point('before')")
	b.goOn(t, s)
	from.Exec(t, pgtest.Superuser, "select pg_switch_wal()")

	to.Configure(t, "archive_mode=off", "restore_command='cp "+archive+"/%f %p'", "recovery_target_name='before'", "recovery_target_action=promote")
	to.Run(t, "touch", filepath.Join(to.Dir, "recovery.signal"))
	to.Start(t)
	s = open(t, to.URL("test_1"))
	eventually(t, "it is promoted", func() bool {
		_, err := s.Read(t.Context(), 0, feed.Limit{})
		return feed.CodeOf(err) != feed.CodeUnavailable
	})
	wantShut(t, s, "another timeline")
	finalize(t, s)
	b.regrown(t, s, false)
}

// Without recovery.signal the server goes on on the old timeline, as the same
// cluster: no identity says so, but the fences do.
func TestABaseBackupStartedWithoutRecoverySignalIsCaughtByFences(t *testing.T) {
	from := pgtest.New(t, unsynced...)
	url := databaseOn(t, from)
	s := open(t, url, quiet)
	b := begin(t, s)
	to := pgtest.Unstarted(t)
	from.Run(t, pgtest.Binary(t, "pg_basebackup"), "--pgdata="+to.Dir, "--checkpoint=fast", "--no-sync")
	b.goOn(t, s)
	to.Start(t)
	s = open(t, to.URL("test_1"))
	wantContent(t, s)
	b.regrown(t, s, true)
}

func TestARolledBackDataDirectoryIsCaughtByFences(t *testing.T) {
	c := pgtest.New(t, unsynced...)
	url := databaseOn(t, c)
	s := open(t, url, quiet)
	b := begin(t, s)
	c.Stop(t, syscall.SIGINT)
	c.Run(t, "cp", "-a", c.Dir, c.Dir+".copy")
	c.Start(t)
	eventually(t, "the store is back", func() bool { _, err := s.Read(t.Context(), 0, feed.Limit{}); return err == nil })
	b.goOn(t, s)
	c.Stop(t, syscall.SIGQUIT)
	c.Run(t, "rm", "-r", c.Dir)
	c.Run(t, "mv", c.Dir+".copy", c.Dir)
	c.Start(t)
	// The store ran all the while, and knows a head that is gone.
	eventually(t, "the store is back", func() bool { _, err := s.Read(t.Context(), 0, feed.Limit{}); return err == nil })
	wantContent(t, s)
	page, err := s.Read(t.Context(), b.shared+1, feed.Limit{Events: 10})
	if err != nil || page.Head.Seq != b.shared || len(page.Events) != 0 {
		t.Errorf("rolled back, the head is %d, %v", page.Head.Seq, err)
	}
	if err := s.Wait(patient(t), b.cursors[len(b.cursors)-1]); err != nil {
		t.Errorf("a reader at the lost head waits on: %v", err)
	}
	b.regrown(t, s, true)
}

func TestARestoreInPlaceUnderRunningStoresIsCaughtByFences(t *testing.T) {
	c := sharedCluster(t)
	url := database(t)
	stores := []*Store{open(t, url, quiet), open(t, url), open(t, url)}
	b := begin(t, stores[0])
	file := dump(t, c, url)
	b.goOn(t, stores[0])
	var readers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for _, s := range stores {
		readers.Go(func() { // keeps connections and their statements busy
			for ctx.Err() == nil {
				_, _ = s.Read(ctx, 0, feed.Limit{Events: 10})
				pause(ctx, time.Millisecond)
			}
		})
	}
	defer readers.Wait()
	defer stop()
	c.Run(t, pgtest.Binary(t, "pg_restore"), "--clean", "--if-exists", "--exit-on-error", "--single-transaction", "--dbname="+url, file)
	for i, s := range stores {
		wantContent(t, s)
		page, err := s.Read(t.Context(), 0, feed.Limit{Events: 100})
		if err != nil || page.Head != b.cursors[b.shared].Position || len(page.Events) != sharedEvents {
			t.Errorf("store %d sees the head %d, %d events, %v", i, page.Head.Seq, len(page.Events), err)
		}
		if err := s.Wait(patient(t), b.cursors[len(b.cursors)-1]); err != nil {
			t.Errorf("store %d: a reader at the lost head waits on: %v", i, err)
		}
	}
	b.regrown(t, stores[1], true)
	// An application goes on as well.
	exec(t, dial(t, url), "select gapless.publish('t', 'x', '\"after\"')")
	moveAll(t, stores[0])
	list := events(t, stores[2])
	if last := list[len(list)-1]; string(last.Data) != `"after"` {
		t.Errorf("the last event is %s", last.Data)
	}
	// Server-side cursors that the lost branch left behind are named.
	exec(t, dial(t, url), "update gapless.consumers set seq = 12, fence = $1 where name = 'busy'", b.cursors[12].Fence.String())
	done, err := stores[0].Finalize(t.Context(), feed.FinalizeOptions{DryRun: true})
	if err != nil || !done.Skips[1].Lost || done.Skips[0].Lost {
		t.Errorf("a dry run: %+v, %v", done.Skips, err)
	}
}
