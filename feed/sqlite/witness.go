package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gapless/feed"
)

// WitnessSuffix is what the name of the witness file adds to the database's.
const WitnessSuffix = "-witness"

// slotBytes keeps the two slots in different pages and sectors, so that one
// torn write spoils one of them.
const slotBytes = 4096

// witnessMark begins every slot.
const witnessMark = "gapless-witness-2"

// deposition is what a witness says: where the log was, and how often its
// control state had changed.
type deposition struct {
	cursor  feed.Cursor
	changes uint64
}

func (in *instance) deposition() deposition { return deposition{in.cursor(), in.changes} }

// witness is a file beside the database that says where the last commit left
// it, so that a database which was put back to an earlier state, or is a copy,
// is noticed at the next start. It is written after each commit, to two slots
// in turn, and synced when the store is closed: a power cut may leave it
// behind the log, never ahead of it.
//
// A slot is one line: mark, count, cursor, changes, and a CRC-32C of all of
// that in hex. Of two good slots the one with the higher count holds.
type witness struct {
	file   *os.File
	count  uint64
	last   deposition // as written last
	failed bool       // the last write failed, and that was logged
}

var errNoWitness = errors.New("there is none")

// readWitness returns what the file holds, without keeping it open.
func readWitness(path string) (count uint64, last deposition, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, deposition{}, errNoWitness
	} else if err != nil {
		return 0, deposition{}, err
	}
	found := false
	for offset := 0; offset < min(len(text), 2*slotBytes); offset += slotBytes {
		n, d, ok := parseSlot(text[offset:min(len(text), offset+slotBytes)])
		if ok && (!found || n > count) {
			count, last, found = n, d, true
		}
	}
	if !found {
		return 0, deposition{}, errors.New("it cannot be read")
	}
	return count, last, nil
}

func slot(count uint64, d deposition) []byte {
	line := fmt.Appendf(make([]byte, 0, 160), "%s %d %s %d", witnessMark, count, d.cursor, d.changes)
	return fmt.Appendf(line, " %08x\n", checksum(line))
}

func parseSlot(text []byte) (count uint64, d deposition, ok bool) {
	line, _, found := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line))
	if !found || len(fields) != 5 || fields[0] != witnessMark {
		return 0, deposition{}, false
	}
	count, countErr := strconv.ParseUint(fields[1], 10, 64)
	cursor, cursorErr := feed.ParseCursor(fields[2])
	changes, changesErr := strconv.ParseUint(fields[3], 10, 64)
	if countErr != nil || cursorErr != nil || changesErr != nil {
		return 0, deposition{}, false
	}
	d = deposition{cursor, changes}
	return count, d, bytes.Equal(slot(count, d), append(line, '\n'))
}

func checksum(line []byte) uint32 {
	return crc32.Checksum(line, crc32.MakeTable(crc32.Castagnoli))
}

// open keeps the file open, and makes it where there is none. Both slots
// then hold the same, durably. A new file gets its name once it is whole: a
// process that is killed here leaves no witness that cannot be read.
func (w *witness) open(path string, d deposition) (err error) {
	name := path
	if w.file == nil {
		flags := os.O_RDWR
		switch count, _, err := readWitness(path); {
		case err == nil:
			w.count = count
		case errors.Is(err, errNoWitness):
			name, flags = path+".part", os.O_RDWR|os.O_CREATE|os.O_TRUNC
		}
		if w.file, err = os.OpenFile(name, flags, 0o600); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil && name != path { // begun anew next time
			_ = w.file.Close()
			w.file = nil
		}
	}()
	for range 2 {
		if err := w.put(d); err != nil {
			return err
		}
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	if name != path {
		if err := os.Rename(name, path); err != nil {
			return err
		}
	}
	return feed.SyncDir(filepath.Dir(path))
}

// put writes the next slot.
func (w *witness) put(d deposition) error {
	w.count++
	text := make([]byte, slotBytes)
	copy(text, slot(w.count, d))
	if _, err := w.file.WriteAt(text, int64(w.count%2)*slotBytes); err != nil {
		return err
	}
	w.last = d
	return nil
}

func (w *witness) close() error {
	if w.file == nil {
		return nil
	}
	return errors.Join(w.file.Sync(), w.file.Close())
}

// testify writes what was committed to the witness. Where that fails, the
// witness stays behind the log, which weakens the guard and loses nothing, so
// it is logged, once. The caller holds s.writing.
func (s *Store) testify(in instance) {
	w := &s.witness
	if w.file == nil || w.last == in.deposition() {
		return
	}
	err := w.put(in.deposition())
	if err != nil && !w.failed {
		s.cfg.Logger.Warn().Err(err).Str("file", s.witnessPath()).Msg("the witness cannot be written: a restore of this database may go unnoticed")
	}
	w.failed = err != nil
}

// renewWitness makes what is committed what the witness says, durably. The
// caller holds s.writing, or nobody else has the store yet.
func (s *Store) renewWitness() error {
	in := s.committed()
	if err := s.witness.open(s.witnessPath(), in.deposition()); err != nil {
		return unavailable("restore", "the witness cannot be written", err)
	}
	return nil
}

func (s *Store) witnessPath() string { return s.place.path + WitnessSuffix }

// guardCause is why the guard keeps the store shut, in plain words; empty
// where it does not.
func (s *Store) guardCause() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tripped
}

// isStrange reports whether the log was another one than its witness's when
// the store was opened, and nobody said yet what happened.
func (s *Store) isStrange() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.strange
}

// liftGuard opens a store that the guard kept shut.
func (s *Store) liftGuard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tripped, s.strange = "", false
	s.notifyLocked()
}

// guardError is what a shut store answers; nil where it is not shut.
func (s *Store) guardError(op string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.guardErrorLocked(op)
}

func (s *Store) guardErrorLocked(op string) error {
	if s.tripped == "" {
		return nil
	}
	return &feed.Error{
		Code: feed.CodeRestoreNotFinalized, Op: op,
		Msg: s.tripped + "; nothing is served until an operator says what happened: see `gapless restore status`",
	}
}

// testimony compares a log with the witness file. The cause is empty where
// the log holds the position of the witness, or has trimmed it, and its
// control state is as new. expected is what the witness says, in words where
// it says nothing; held reads the fence of an event of the log.
//
// An open store writes the file itself, and may be ahead of any snapshot with
// it: this is for a log that stands still.
func (s *Store) testimony(in instance, held func(seq uint64) (feed.Fence, error)) (expected, cause string, err error) {
	_, last, err := readWitness(s.witnessPath())
	if err != nil {
		expected = "unknown: the witness file " + s.witnessPath() + ": " + err.Error()
		if !in.witnessed && errors.Is(err, errNoWitness) {
			return expected, "", nil // it is new
		}
		return expected, fmt.Sprintf("the witness file %s does not say where this log was when it last ran (%v), so the log may be a copy or a backup", s.witnessPath(), err), nil
	}
	cursor := last.cursor
	expected = cursor.String()
	switch {
	case cursor.Epoch != in.epoch && !in.witnessed:
		return expected, fmt.Sprintf("the database is new, but the witness file %s remembers a log of epoch %s at event %d: the database file is gone; put it back or, to begin a new log, remove the witness file", s.witnessPath(), cursor.Epoch, cursor.Seq), nil
	case cursor.Epoch != in.epoch:
		return expected, fmt.Sprintf("the witness file remembers the log of epoch %s at event %d, but the database is of epoch %s at event %d: another database was put in its place", cursor.Epoch, cursor.Seq, in.epoch, in.head.Seq), nil
	case cursor.Seq > in.head.Seq:
		return expected, fmt.Sprintf("the log ends at event %d, but the last run had stored event %d: the database was put back to an earlier state, and events %d to %d are gone", in.head.Seq, cursor.Seq, in.head.Seq+1, cursor.Seq), nil
	}
	if cursor.Seq > 0 && cursor.Seq+1 >= in.oldest { // else it was trimmed, or there is nothing to compare
		fence, err := in.fenceAt(cursor.Seq, held)
		if err != nil {
			return expected, "", err
		}
		if !fence.Agrees(cursor.Fence) {
			return expected, fmt.Sprintf("event %d of the log is not the one that the last run had stored: the database was put back to an earlier state, and has grown again since", cursor.Seq), nil
		}
	}
	if last.changes > in.changes {
		return fmt.Sprintf("%s, after change %d of consumers, webhooks or the seal", expected, last.changes),
			fmt.Sprintf("the log holds the last event that was stored, but of the changes of consumers, webhooks or the seal the last %d are gone: the database was put back to an earlier state", last.changes-in.changes), nil
	}
	return expected, "", nil
}
