package feed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func fence(t *testing.T, text string) feed.Fence {
	t.Helper()
	f, ok := feed.ParseFence(text)
	if !ok {
		t.Fatalf("%q is no fence", text)
	}
	return f
}

func manifest(t *testing.T) feed.Manifest {
	return feed.Manifest{
		Format: feed.ManifestFormat, Store: "sqlite", Epoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", OldestSeq: 3, HeadSeq: 42,
		HeadFence: fence(t, "7K3M9Q2P"), Identity: "this \"disk\"", Final: true, Time: time.Date(2026, 11, 30, 15, 41, 0, 123456000, time.UTC),
	}
}

// backup is a directory with files and their manifest.
func backup(t *testing.T, files map[string]string) (string, feed.Manifest) {
	t.Helper()
	dir, m := t.TempDir(), manifest(t)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := feed.HashFile(t.Context(), dir, name)
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, file)
	}
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func sameManifest(t *testing.T, got, want feed.Manifest) {
	t.Helper()
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) || !got.Time.Equal(want.Time) {
		t.Errorf("%s\nwant\n%s", a, b)
	}
}

func TestAManifestComesBackAsItWasWritten(t *testing.T) {
	dir, m := backup(t, map[string]string{"a.db": "some text", "empty": ""})
	for _, path := range []string{dir, filepath.Join(dir, feed.ManifestName)} {
		got, err := feed.ReadManifest(path)
		if err != nil {
			t.Fatal(err)
		}
		sameManifest(t, got, m)
	}
	got, err := feed.VerifyFiles(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	sameManifest(t, got, m)

	part := filepath.Join(dir, feed.ManifestName+".part") // of an attempt that was killed
	if err := os.WriteFile(part, bytes.Repeat([]byte("x"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := manifest(t)
	empty.OldestSeq, empty.HeadSeq, empty.HeadFence, empty.Final = 1, 0, feed.Fence{}, false
	if err := empty.Write(dir); err != nil { // over the other one
		t.Fatal(err)
	}
	if got, err = feed.ReadManifest(dir); err != nil {
		t.Fatal(err)
	}
	sameManifest(t, got, empty)
	if text, err := os.ReadFile(filepath.Join(dir, feed.ManifestName)); err != nil || !json.Valid(text) {
		t.Errorf("%v: the file is not one JSON text: %.500s", err, text)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestAManifestCannotBeWrittenWhereThereIsNoDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := manifest(t).Write(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want %v", err, os.ErrNotExist)
	}
	// Nor over something that is no file: the half-written one is taken away.
	if err := os.MkdirAll(filepath.Join(dir, feed.ManifestName, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := manifest(t).Write(dir); err == nil {
		t.Error("it was written over a directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestManifestsThatAreRefused(t *testing.T) {
	text := func(change func(m *feed.Manifest)) string {
		m := manifest(t)
		change(&m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	good := text(func(*feed.Manifest) {})
	if _, err := feed.ParseManifest([]byte(good)); err != nil {
		t.Fatal(err)
	}
	files := func(name string) string {
		return text(func(m *feed.Manifest) { m.Files = []feed.ManifestFile{{Name: "a.db"}, {Name: name}} })
	}
	for what, bad := range map[string]string{
		"text behind it":      good + "x",
		"nothing":             "",
		"no JSON":             "hello",
		"cut short":           good[:len(good)-1],
		"no object":           `[1]`,
		"another format":      text(func(m *feed.Manifest) { m.Format = feed.ManifestFormat + 1 }),
		"no format":           strings.Replace(good, `"format":1,`, "", 1),
		"no epoch":            text(func(m *feed.Manifest) { m.Epoch = "" }),
		"no ULID":             text(func(m *feed.Manifest) { m.Epoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYC" }),
		"a lower-case epoch":  text(func(m *feed.Manifest) { m.Epoch = "01kb7q3v9w8zj4m2t6r5n0xycd" }),
		"oldest 0":            text(func(m *feed.Manifest) { m.OldestSeq = 0 }),
		"oldest behind head":  text(func(m *feed.Manifest) { m.OldestSeq = 44 }),
		"a negative head":     strings.Replace(good, `"head_seq":42`, `"head_seq":-1`, 1),
		"no head fence":       text(func(m *feed.Manifest) { m.HeadFence = feed.Fence{} }),
		"a fence at head 0":   text(func(m *feed.Manifest) { m.OldestSeq, m.HeadSeq = 1, 0 }),
		"no fence in a fence": strings.Replace(good, "7K3M9Q2P", "7K3M9Q2", 1),
		"a file with no name": files(""),
		"a file elsewhere":    files("../secret"),
		"an absolute file":    files("/etc/passwd"),
		"a file in a folder":  files("a/b"),
		"the folder":          files("."),
		"the folder above":    files(".."),
	} {
		if _, err := feed.ParseManifest([]byte(bad)); err == nil || feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("%s: %v, want an error of code %s", what, err, feed.CodeInvalid)
		}
	}
	if _, err := feed.ParseManifest([]byte(text(func(m *feed.Manifest) { m.OldestSeq = 43 }))); err != nil {
		t.Errorf("of a log that was trimmed empty: %v", err)
	}
}

func TestAManifestThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for what, path := range map[string]string{"none": filepath.Join(dir, "none"), "an empty directory": dir} {
		_, err := feed.ReadManifest(path)
		if err == nil || feed.CodeOf(err) != feed.CodeInvalid || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want an error of code %s that says why", what, err, feed.CodeInvalid)
		}
		if _, err := feed.VerifyFiles(t.Context(), path); err == nil || feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("verifying %s: %v, want an error of code %s", what, err, feed.CodeInvalid)
		}
	}
}

func TestVerifyFindsWhatDiffers(t *testing.T) {
	const name = "b.db"
	long := strings.Repeat("0123456789", 10_000)
	for what, damage := range map[string]func(path string) error{
		"a flipped bit in the middle": func(path string) error {
			text := []byte(long)
			text[len(text)/2] ^= 1
			return os.WriteFile(path, text, 0o600)
		},
		"a flipped bit at the end": func(path string) error {
			text := []byte(long)
			text[len(text)-1] ^= 0x80
			return os.WriteFile(path, text, 0o600)
		},
		"a missing file": os.Remove,
		"a longer file":  func(path string) error { return os.WriteFile(path, []byte(long+"x"), 0o600) },
		"a shorter file": func(path string) error { return os.Truncate(path, int64(len(long)-1)) },
		"an empty file":  func(path string) error { return os.Truncate(path, 0) },
		"a directory instead": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
	} {
		dir, _ := backup(t, map[string]string{"a.db": "fine", name: long})
		if err := damage(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		_, err := feed.VerifyFiles(t.Context(), dir)
		if err == nil || feed.CodeOf(err) != feed.CodeInvalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error of code %s that names %s", what, err, feed.CodeInvalid, name)
		}
		if err != nil && strings.HasSuffix(what, "er file") && !strings.Contains(err.Error(), "the manifest says 100000") {
			t.Errorf("%s: %v does not say how long it should be", what, err)
		}
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	dir, _ := backup(t, map[string]string{"a.db": "fine"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Which says nothing about the backup.
	if _, err := feed.VerifyFiles(ctx, dir); !errors.Is(err, context.Canceled) || feed.CodeOf(err) == feed.CodeInvalid {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if _, err := feed.HashFile(ctx, dir, "a.db"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
