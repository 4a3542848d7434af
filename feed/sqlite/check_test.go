package sqlite

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

func TestCheckOfAHealthyStore(t *testing.T) {
	s := newScene(t)
	store, err := Open(t.Context(), Config{Path: s.path, Retention: feed.Retention{Events: 10_500}})
	must(t, err)
	defer store.Close()
	must(t, store.Check(t.Context(), nil))
	fillBatches(t, store, 12, 1000)
	s.append(store, 3, "more")
	head := s.cursorAtHead(store)
	must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: head}))
	must(t, store.CreateWebhook(t.Context(), feed.Webhook{ID: "w", URL: "u", Status: feed.WebhookActive, Topics: []string{"a"}, Cursor: head}))
	var progress []float64
	must(t, store.Check(t.Context(), func(done float64) { progress = append(progress, done) }))
	wantProgress(t, progress)
	s.finalize(store)
	must(t, store.Check(t.Context(), nil))
}

func (s *scene) cursorAtHead(store *Store) feed.Cursor {
	s.Helper()
	page, err := store.Read(s.Context(), 0, feed.Limit{})
	must(s.T, err)
	return feed.Cursor{Epoch: page.Epoch, Position: page.Head}
}

// TestDamageIsFound changes a backup's database, and makes its manifest agree
// with the file, so that the rules of the log alone can tell.
func TestDamageIsFound(t *testing.T) {
	whole := damageable(t)
	for name, c := range map[string]struct{ statement, finding string }{
		"a hole":               {"DELETE FROM events WHERE seq = 20", "event 21 follows event 19"},
		"the end is missing":   {"DELETE FROM events WHERE seq = 40", "the log ends at event 39"},
		"the start is missing": {"DELETE FROM events WHERE seq = 11", "event 12 follows event 10"},
		"one too many":         {"INSERT INTO events SELECT 41, fence, time, offset, id, type, topic, source, data, ce FROM events WHERE seq = 40", "event 41"},
		"one too old":          {"INSERT INTO events SELECT 5, fence, time, offset, id, type, topic, source, data, ce FROM events WHERE seq = 40", "event 5 is older than the oldest"},
		"sums":                 {"UPDATE events SET offset = offset + 1 WHERE seq = 30", "event 30 begins at byte"},
		"a payload":            {"UPDATE events SET data = data || ' ' WHERE seq = 30", "event 31 begins at byte"},
		"the last payload":     {"UPDATE events SET data = data || ' ' WHERE seq = 40", "the log ends at byte"},
		"a fence":              {"UPDATE events SET fence = 'lowercas' WHERE seq = 30", `the fence of event 30 is "lowercas"`},
		"the head's fence":     {"UPDATE events SET fence = '00000000' WHERE seq = 40", "the fence of event 40, the head"},
		"time":                 {"UPDATE events SET time = time - 1000000000 WHERE seq = 30", "the time of event 30"},
		"a topic":              {"UPDATE events SET topic = 'a..b' WHERE seq = 30", `the topic "a..b"`},
		"the instance's head":  {"UPDATE instance SET head_fence = ''", "the head is at event 40"},
		"the instance's epoch": {"UPDATE instance SET epoch = 'x'", `the epoch "x"`},
		"the trimmed fence":    {"UPDATE instance SET trimmed_fence = ''", "the log begins at event 11"},
		"bounds":               {"UPDATE instance SET oldest = 42", "the bounds 42 to 40"},
		"dedupe":               {"INSERT INTO dedupe VALUES (41, x'00', x'00', 0)", "for event 41"},
		"a consumer's seq":     {"UPDATE consumers SET seq = 41", "consumer c is at"},
		"a consumer's fence":   {"UPDATE consumers SET fence = '00000000'", "consumer c is at"},
		"a consumer's epoch":   {"UPDATE consumers SET epoch = '01ARZ3NDEKTSV4RRFFQ69G5FAV'", "consumer c is at"},
		"a webhook's topics":   {"UPDATE webhooks SET topics = 'a'", "the topics of webhook w"},
		"audit":                {"UPDATE audit SET detail = '[]'", "audit entry 1"},
		"an index":             {"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE INDEX events_topic ON events (type)' WHERE name = 'events_topic'", "events_topic"},
		"another version":      {"PRAGMA user_version = 99", "its version is 99"},
		"another program":      {"PRAGMA application_id = 1", "not of this program"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := &scene{T: t, path: filepath.Join(dir, BackupFile)}
			for _, name := range []string{BackupFile, feed.ManifestName} {
				s.cp(filepath.Join(whole, name), filepath.Join(dir, name))
			}
			m, err := VerifyBackup(t.Context(), dir, nil)
			must(t, err)
			s.exec(strings.Split(c.statement, ";")...)
			file, err := feed.HashFile(t.Context(), dir, BackupFile)
			must(t, err)
			m.Files = []feed.ManifestFile{file}
			must(t, m.Write(dir))
			_, err = VerifyBackup(t.Context(), dir, nil)
			if feed.CodeOf(err) != feed.CodeInvalid || !strings.Contains(err.Error(), c.finding) {
				t.Errorf("verify: %v\nwant an error that says %q", err, c.finding)
			}
		})
	}
}

// damageable is a small backup of events 11 to 40, a consumer and a webhook.
func damageable(t *testing.T) string {
	t.Helper()
	s := newScene(t)
	store, err := Open(t.Context(), Config{Path: s.path, Retention: feed.Retention{Events: 30}})
	must(t, err)
	defer store.Close()
	s.append(store, 40, "x")
	head := s.cursorAtHead(store)
	must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: head}))
	must(t, store.CreateWebhook(t.Context(), feed.Webhook{ID: "w", URL: "u", Status: feed.WebhookActive, Topics: []string{"a"}, Cursor: head}))
	dir := filepath.Join(t.TempDir(), "backup")
	_, err = store.Backup(t.Context(), dir, feed.BackupOptions{})
	must(t, err)
	return dir
}

func TestManifestThatDoesNotAgree(t *testing.T) {
	for name, change := range map[string]func(m *feed.Manifest){
		"epoch":  func(m *feed.Manifest) { m.Epoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV" },
		"oldest": func(m *feed.Manifest) { m.OldestSeq = 12 },
		"head":   func(m *feed.Manifest) { m.HeadSeq = 41 },
		"fence":  func(m *feed.Manifest) { m.HeadFence = feed.NewFence() },
		"sealed": func(m *feed.Manifest) { m.Final = true },
		"store":  func(m *feed.Manifest) { m.Store = "postgres" },
		"files":  func(m *feed.Manifest) { m.Files = nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := damageable(t)
			m, err := feed.ReadManifest(dir)
			must(t, err)
			change(&m)
			must(t, m.Write(dir))
			if _, err := VerifyBackup(t.Context(), dir, nil); feed.CodeOf(err) != feed.CodeInvalid {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

func TestFlippedByteIsFound(t *testing.T) {
	dir := damageable(t)
	path := filepath.Join(dir, BackupFile)
	whole, err := os.ReadFile(path)
	must(t, err)
	for _, at := range []int{0, 100, len(whole) / 2, len(whole) - 1} {
		broken := []byte(string(whole))
		broken[at] ^= 1
		must(t, os.WriteFile(path, broken, 0o600))
		if _, err := VerifyBackup(t.Context(), dir, nil); feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}

// TestDamagedPage spoils pages of the file: whatever the check says, it is an
// error of its own and nothing else happens.
func TestDamagedPage(t *testing.T) {
	dir := damageable(t)
	path := filepath.Join(dir, BackupFile)
	whole, err := os.ReadFile(path)
	must(t, err)
	const page = 4096
	for at := page; at < len(whole); at += page {
		broken := []byte(string(whole))
		copy(broken[at:at+page], strings.Repeat("\xff", page))
		must(t, os.WriteFile(path, broken, 0o600))
		snap, err := openSnapshot(t.Context(), fileURI(path, url.Values{"mode": {"ro"}, "immutable": {"1"}}))
		if err != nil {
			continue
		}
		err = inspect(t.Context(), snap.conn, snap.in, func(float64) {})
		snap.close()
		if err == nil {
			t.Errorf("the damage of page %d was not found", at/page+1)
		}
	}
}
