package lawtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Recorder writes records as JSON lines. It is safe for concurrent use.
type Recorder struct {
	mu  sync.Mutex
	w   io.Writer // guarded by mu
	err error     // first failed write, guarded by mu
}

// NewRecorder returns a Recorder that writes to w. Each record is one call of w.Write, so that several processes
// may append to one file.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{w: w} }

// Record writes rec as one line. It blocks as long as the writer does. The error is that of this record (a kind
// that does not exist), or of the writer; once the writer has failed, every later call returns the same error,
// since a history with a hole in it proves nothing.
func (r *Recorder) Record(rec Record) error {
	if !rec.Kind.known() {
		return fmt.Errorf("record: kind %q is unknown", string(rec.Kind))
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(rec); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		if _, err := r.w.Write(line.Bytes()); err != nil {
			r.err = fmt.Errorf("record: %w", err)
		}
	}
	return r.err
}

// ReadHistory reads what recorders wrote. Several files are one history: use [io.MultiReader]; only the order of
// the records of one client matters. A field or a kind that does not exist is an error with its line number: a
// misspelt field would be one that is not judged. Where the last line was cut in the writing, the records before
// it come back together with an error that wraps [io.ErrUnexpectedEOF].
func ReadHistory(r io.Reader) ([]Record, error) {
	var history []Record
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return history, fmt.Errorf("history line %d: %w", n, err)
		}
		atEnd := err != nil
		if len(bytes.TrimSpace(line)) > 0 {
			rec, err := readRecord(line)
			if errors.Is(err, io.ErrUnexpectedEOF) && !atEnd {
				err = errors.New("the line is cut short") // not by the end of the file, so no crash explains it
			}
			if err != nil {
				return history, fmt.Errorf("history line %d: %w", n, err)
			}
			history = append(history, rec)
		}
		if atEnd {
			return history, nil
		}
	}
}

func readRecord(line []byte) (Record, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	var rec Record
	if err := dec.Decode(&rec); err != nil {
		return Record{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Record{}, errors.New("more than one value")
	}
	if !rec.Kind.known() {
		return Record{}, fmt.Errorf("kind %q is unknown", string(rec.Kind))
	}
	return rec, nil
}
