package upstream

import (
	"io"
	"time"
)

// chunkBytes is how much is read from the network at a time.
const chunkBytes = 32 << 10

// filter is a response body that reads a raw event stream and gives only complete frames on, in the form
// that framer describes. What stands after the last complete block when the stream ends is dropped.
//
// A Read gives bytes of one frame at most. The library's scanner searches all that it has buffered for five
// different line ends at every event; with one frame in its buffer at a time the search stays linear.
type filter struct {
	src    io.ReadCloser
	framer *framer
	watch  *watch
	ended  func() error // the connection's context; what it has read by then is not given on

	chunk []byte // read from src, not yet framed
	buf   []byte // backs chunk
	out   []byte // rest of the frame that is being given on
	err   error  // from src or the framer; comes after out
}

func newFilter(src io.ReadCloser, f *framer, w *watch, ended func() error) *filter {
	return &filter{src: src, framer: f, watch: w, ended: ended, buf: make([]byte, chunkBytes)}
}

// Read gives the next bytes of the current frame, and blocks until there is one. It never returns 0 bytes
// without an error, so that a stream of comments does not look like a reader that makes no progress.
func (f *filter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(f.out) == 0 {
		if err := f.ended(); err != nil {
			return 0, err
		}
		if len(f.chunk) == 0 {
			if f.err != nil {
				return 0, f.err
			}
			f.fill()
			continue
		}
		used, frame, err := f.framer.next(f.chunk)
		f.chunk = f.chunk[used:]
		f.out = frame
		if err != nil {
			f.err, f.chunk = err, nil
		}
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

func (f *filter) fill() {
	f.watch.start()
	n, err := f.src.Read(f.buf)
	f.watch.stop()
	f.chunk, f.err = f.buf[:n], err
}

// Close closes the body that the filter reads.
func (f *filter) Close() error { return f.src.Close() }

// watch ends a connection on which nothing happens. A nil watch does nothing.
type watch struct {
	timeout time.Duration
	timer   *time.Timer
}

// newWatch returns a running watch that calls end when it is not stopped in time; nil for no timeout.
func newWatch(timeout time.Duration, end func()) *watch {
	if timeout == 0 {
		return nil
	}
	return &watch{timeout: timeout, timer: time.AfterFunc(timeout, end)}
}

func (w *watch) start() {
	if w != nil {
		w.timer.Reset(w.timeout)
	}
}

func (w *watch) stop() {
	if w != nil {
		w.timer.Stop()
	}
}
