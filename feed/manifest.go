package feed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// ManifestName is the file that makes a directory a backup.
const ManifestName = "manifest.json"

// ManifestFormat is the version of the manifest that this code writes.
const ManifestFormat = 1

// Manifest says what a backup holds.
type Manifest struct {
	Format    int            `json:"format"`
	Store     string         `json:"store"` // "sqlite", "postgres"
	Epoch     Epoch          `json:"epoch"`
	OldestSeq uint64         `json:"oldest_seq"`
	HeadSeq   uint64         `json:"head_seq"`
	HeadFence Fence          `json:"head_fence"`
	Identity  string         `json:"identity"` // of what the store ran on
	Final     bool           `json:"final"`    // the source takes no more appends
	Time      time.Time      `json:"time"`
	Files     []ManifestFile `json:"files"` // of the directory; none where another tool copies the data
}

// ManifestFile is one file of a backup.
type ManifestFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hex
}

// Write stores the manifest in the directory, durably, as its last file: a
// directory without one is an unfinished backup.
func (m Manifest) Write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, ManifestName+".part")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, ManifestName))
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// ParseManifest reads a manifest's text. The error has [CodeInvalid].
func ParseManifest(text []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, &Error{Code: CodeInvalid, Op: "manifest", Msg: "not a backup's manifest", Err: err}
	}
	switch {
	case m.Format != ManifestFormat:
		return Manifest{}, invalid("manifest", fmt.Sprintf("its format is %d, this version reads %d", m.Format, ManifestFormat))
	case !validEpoch(string(m.Epoch)):
		return Manifest{}, invalid("manifest", "its epoch is no ULID")
	case m.OldestSeq == 0 || m.OldestSeq > m.HeadSeq+1:
		return Manifest{}, invalid("manifest", "its bounds are not those of a log")
	case m.HeadFence.Known() != (m.HeadSeq > 0):
		return Manifest{}, invalid("manifest", "it has no head fence")
	}
	for _, f := range m.Files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." {
			return Manifest{}, invalid("manifest", fmt.Sprintf("%q is no file name", clip(f.Name)))
		}
	}
	return m, nil
}

// ReadManifest reads the manifest of a directory, or the file itself.
func ReadManifest(path string) (Manifest, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, ManifestName)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Manifest{}, &Error{Code: CodeInvalid, Op: "manifest", Msg: "cannot be read", Err: err}
	}
	return ParseManifest(text)
}

// HashFile describes one file of a directory for its manifest.
func HashFile(ctx context.Context, dir, name string) (ManifestFile, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ManifestFile{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, readerUntil{ctx, f})
	return ManifestFile{Name: name, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

// readerUntil ends a long read with its context.
type readerUntil struct {
	ctx context.Context
	io.Reader
}

func (r readerUntil) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// VerifyFiles reads the manifest of a directory and compares every file that
// it names, by size and checksum. The error names the first that differs and
// has [CodeInvalid].
func VerifyFiles(ctx context.Context, dir string) (Manifest, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return Manifest{}, err
	}
	for _, want := range m.Files {
		got, err := HashFile(ctx, dir, want.Name)
		switch {
		case ctx.Err() != nil:
			return m, ctx.Err()
		case err != nil:
			return m, &Error{Code: CodeInvalid, Op: "verify", Msg: want.Name + " cannot be read", Err: err}
		case got.Bytes != want.Bytes:
			return m, invalid("verify", fmt.Sprintf("%s has %d bytes, the manifest says %d", want.Name, got.Bytes, want.Bytes))
		case got.SHA256 != want.SHA256:
			return m, invalid("verify", want.Name+" is not the file that was written: its checksum differs")
		}
	}
	return m, nil
}
