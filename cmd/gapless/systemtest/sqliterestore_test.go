//go:build linux

package systemtest_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"gapless/feed/lawtest"
)

// past is a store that has grown behind a copy of it: what restores begin from.
type past struct {
	t      *testing.T
	g      *gateway
	h      *history
	p      *publisher
	path   string   // of the store
	copy   string   // a folder with what the store's folder held at the copy
	shared []string // cursors of events that the copy has
	lost   []string // cursors of events that it lacks
	epoch  string
}

// newPast publishes 50 events, stops, copies the folder, starts again, publishes 50 more, and stops.
func newPast(t *testing.T) *past {
	t.Helper()
	store, path := sqliteStore(t)
	w := &past{t: t, path: path, copy: t.TempDir(), h: &history{}}
	w.g = serve(t, "--store", store, "--reconnect-delay", "500ms")
	w.p = newPublisher(t, w.g, w.h, "old", 64, "orders")
	w.p.must(t, 50, 10)
	head := w.g.log()[50].Seq // server.status and the 50
	w.stop()
	copyFolder(t, filepath.Dir(path), w.copy)
	w.g.start()
	w.epoch = w.g.status().Epoch
	w.p.must(t, 50, 10)
	for _, rec := range w.g.log() {
		if rec.Seq <= head {
			w.shared = append(w.shared, rec.Cursor)
		} else {
			w.lost = append(w.lost, rec.Cursor)
		}
	}
	w.stop()
	return w
}

// stop ends the program as an operator does.
func (w *past) stop() {
	w.t.Helper()
	w.g.signal(syscall.SIGTERM)
	if code := w.g.wait(); code != 0 {
		w.t.Fatalf("exit code %d", code)
	}
}

// grow publishes other events than before, past the old head.
func (w *past) grow() {
	w.t.Helper()
	p := newPublisher(w.t, w.g, w.h, "new", 64, "orders")
	p.must(w.t, 150, 10)
	if head, old := w.g.status().HeadSeq, uint64(len(w.shared)+len(w.lost)); head <= old {
		w.t.Fatalf("the head is %d, not past the old one, %d", head, old)
	}
}

// copyFolder copies the files of a folder, sparing nothing.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A copy of the database is put back over a file that has grown: the guard keeps the gateway shut, and says so, until
// the operator finalizes through the running gateway. No old cursor is ever served: the epoch is another one.
func TestAFileCopiedBackIsShutUntilFinalized(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	copyFile(t, filepath.Join(w.copy, filepath.Base(w.path)), w.path)
	w.g.launch()
	w.g.shut()
	refuse(t, []string{"gapless restore finalize"}, "restore", "status", "--url", "http://"+w.g.addr)
	refuse(t, []string{"--yes"}, "restore", "finalize", "--url", "http://"+w.g.addr) // nobody sits at a terminal
	w.g.shut()
	succeed(t, "restore", "finalize", "--dry-run", "--url", "http://"+w.g.addr)
	w.g.shut()
	succeed(t, "restore", "finalize", "--yes", "--url", "http://"+w.g.addr)
	w.g.await()
	if epoch := w.g.status().Epoch; epoch == w.epoch {
		t.Error("the epoch stayed")
	}
	if got := w.g.audit(); !slices.Contains(got, "restore.finalize") {
		t.Errorf("the audit trail has %v", got)
	}
	w.grow()
	resyncs(t, w.g, slices.Concat(w.shared, w.lost), "epoch_changed")
	// It is settled for good.
	w.stop()
	w.g.start()
	w.stop()
	succeed(t, "check", "--store", "sqlite:"+w.path)
}

// The whole folder is rolled back, witness and all, as a snapshot of a file system does: the guard cannot see it, but
// once the log has grown past the old head, cursors of the branch that was lost are told so, and those of the shared
// past go on, in the same epoch.
func TestAFolderRolledBackIsSeenByTheFence(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	dir := filepath.Dir(w.path)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, w.copy, dir)
	w.g.start()
	if one, _ := first(t, w.g, w.lost[len(w.lost)-1]); one.Kind != lawtest.KindResync || one.Reason != "cursor_ahead" {
		t.Errorf("a cursor above the head got %s %s", one.Kind, one.Reason)
	}
	w.grow()
	if epoch := w.g.status().Epoch; epoch != w.epoch {
		t.Errorf("the epoch is %s, was %s", epoch, w.epoch)
	}
	resyncs(t, w.g, w.lost, "history_changed")
	resumes(t, w.g, w.shared)
}

// A backup of a running store is put in place of a store that went on: shut, until the stopped store is finalized.
func TestABackupRestoredIsShutUntilFinalized(t *testing.T) {
	t.Parallel()
	store, path := sqliteStore(t)
	g := serve(t, "--store", store, "--reconnect-delay", "500ms")
	w := &past{t: t, g: g, h: &history{}, path: path, epoch: g.status().Epoch}
	w.p = newPublisher(t, g, w.h, "old", 64, "orders")
	w.p.must(t, 50, 10)
	dir := filepath.Join(t.TempDir(), "backup")
	succeed(t, "backup", "--url", "http://"+g.addr, dir)
	succeed(t, "backup", "verify", dir)
	refuse(t, []string{dir}, "backup", "--url", "http://"+g.addr, dir) // there is one already
	w.p.must(t, 50, 10)
	for _, rec := range g.log() {
		w.lost = append(w.lost, rec.Cursor)
	}
	w.stop()
	copyFile(t, filepath.Join(dir, "gapless.db"), path)
	refuse(t, []string{"gapless restore finalize"}, "restore", "status", "--store", store)
	g.launch()
	g.shut()
	w.stop()
	// Its manifest is of no final backup, so that it is no relocation.
	refuse(t, []string{"final"}, "restore", "finalize", "--yes", "--store", store, "--relocation", filepath.Join(dir, "manifest.json"))
	succeed(t, "restore", "finalize", "--yes", "--store", store, "--actor", "the-operator")
	g.start()
	if epoch := g.status().Epoch; epoch == w.epoch {
		t.Error("the epoch stayed")
	}
	w.grow()
	resyncs(t, w.g, w.lost, "epoch_changed")
	contains(t, "the audit trail", string(g.get("/api/v1/audit")), "the-operator", "restore.finalize")
}

// A store is moved without loss: a final backup seals it, and its copy starts elsewhere with the manifest, in the same
// epoch, so that no reader notices. The sealed source takes nothing any more, also after a restart.
func TestAFinalBackupMovesAStoreWithoutAResync(t *testing.T) {
	t.Parallel()
	store, path := sqliteStore(t)
	g := serve(t, "--store", store, "--reconnect-delay", "500ms")
	w := &past{t: t, g: g, h: &history{}, path: path, epoch: g.status().Epoch}
	w.p = newPublisher(t, g, w.h, "old", 64, "orders")
	w.p.must(t, 50, 10)
	ctx := bounded(t)
	follower := newReader(g, w.h, "follower", "orders", "end")
	follower.impatient = follower.retry
	clients := herd{t: t}
	clients.run(func() error { return follower.toEnd(ctx) })
	eventually(t, "the reader is live", func() bool { return deliveredToAll([]*reader{follower}, lawtest.KindLive, 1) })

	dir := filepath.Join(t.TempDir(), "backup")
	refuse(t, []string{"--yes"}, "backup", "--final", "--url", "http://"+g.addr, dir)
	w.p.must(t, 10, 10) // it was not sealed
	succeed(t, "backup", "--final", "--yes", "--url", "http://"+g.addr, dir)
	succeed(t, "backup", "verify", dir)
	sealed := func() {
		t.Helper()
		if a := g.ask(http.MethodPost, "/api/v1/events", "", []byte(`{"topic":"orders","data":1}`)); a.status != http.StatusServiceUnavailable || a.code != "sealed" {
			t.Errorf("publish into a sealed store: %d %s", a.status, a.body)
		}
	}
	sealed()
	log := g.log()
	for _, rec := range log[:len(log)-1] {
		w.shared = append(w.shared, rec.Cursor)
	}
	w.stop()
	g.launch()
	sealed()
	g.kill()

	// The new place takes over the port too, so that the follower comes back to it.
	moved := filepath.Join(t.TempDir(), "moved.db")
	copyFile(t, filepath.Join(dir, "gapless.db"), moved)
	g.args = []string{"--store", "sqlite:" + moved, "--reconnect-delay", "500ms"}
	g.launch()
	g.shut()
	succeed(t, "restore", "finalize", "--yes", "--url", "http://"+g.addr, "--relocation", filepath.Join(dir, "manifest.json"))
	g.await()
	if epoch := g.status().Epoch; epoch != w.epoch {
		t.Errorf("the epoch is %s, was %s", epoch, w.epoch)
	}
	w.p.must(t, 10, 10)
	resumes(t, w.g, w.shared)
	if got := g.audit(); !slices.Contains(got, "restore.relocate") {
		t.Errorf("the audit trail has %v", got)
	}
	w.p.end(t)
	clients.wait()
	if told := w.h.of("follower", lawtest.KindResync); len(told) > 0 {
		t.Errorf("the reader was told to resync: %+v", told)
	}
	w.h.judge(t, lawtest.Options{MustReach: true, Log: g.log()})
}
