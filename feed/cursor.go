package feed

import (
	"crypto/rand"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// Epoch names one timeline: a ULID in its canonical, upper-case text form.
type Epoch string

// NewEpoch mints an epoch from the given time and entropy.
func NewEpoch(now time.Time, entropy io.Reader) (Epoch, error) {
	id, err := ulid.New(ulid.Timestamp(now), entropy)
	if err != nil {
		return "", &Error{Code: CodeInternal, Op: "epoch", Msg: "no entropy", Err: err}
	}
	return Epoch(id.String()), nil
}

// Next mints an epoch that sorts behind e, also where the clock is behind the
// one that e was minted by.
func (e Epoch) Next(now time.Time, entropy io.Reader) (Epoch, error) {
	if old, err := ulid.ParseStrict(string(e)); err == nil {
		if after := ulid.Time(old.Time() + 1); now.Before(after) {
			now = after
		}
	}
	return NewEpoch(now, entropy)
}

// Fence says which event a seq means: 8 Crockford base32 characters (40
// random bits), minted for every append. The zero Fence means "unknown".
type Fence [8]byte

// crockford is the alphabet of ULIDs and fences: no I, L, O, U.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// NewFence mints a fence from crypto/rand.
func NewFence() Fence {
	var f Fence
	rand.Read(f[:]) // never fails (crypto/rand, Go 1.24)
	for i, b := range f {
		f[i] = crockford[b&31]
	}
	return f
}

// ParseFence reads a fence's text form.
func ParseFence(s string) (Fence, bool) {
	var f Fence
	if len(s) != len(f) {
		return Fence{}, false
	}
	for i := range f {
		if strings.IndexByte(crockford, s[i]) < 0 {
			return Fence{}, false
		}
		f[i] = s[i]
	}
	return f, true
}

// Known reports whether the fence is not the zero value.
func (f Fence) Known() bool { return f[0] != 0 }

// Agrees reports whether two fences can mean the same event: they are equal,
// or one of them is unknown.
func (f Fence) Agrees(g Fence) bool { return f == g || !f.Known() || !g.Known() }

// String returns the eight characters, or "" where the fence is unknown.
func (f Fence) String() string {
	if !f.Known() {
		return ""
	}
	return string(f[:])
}

// MarshalText implements [encoding.TextMarshaler]: as String.
func (f Fence) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. Empty is unknown.
func (f *Fence) UnmarshalText(text []byte) error {
	parsed, ok := ParseFence(string(text))
	if !ok && len(text) > 0 {
		return invalid("fence", "want 8 characters of Crockford's base32")
	}
	*f = parsed
	return nil
}

// Position is a place in one epoch: a seq and, where known, its fence.
// Seq 0 lies before the first event.
type Position struct {
	Seq   uint64
	Fence Fence
}

// Cursor is a position and the epoch that it belongs to. Its text form
// <epoch>-<seq>[-<fence>] is what `id:` carries; clients treat it as opaque.
type Cursor struct {
	Epoch Epoch // empty: the client named none
	Position
}

// String returns the wire form; without an epoch, the bare seq.
func (c Cursor) String() string { return string(c.append(make([]byte, 0, 64))) }

func (c Cursor) append(b []byte) []byte {
	if c.Epoch != "" {
		b = append(b, c.Epoch...)
		b = append(b, '-')
	}
	b = strconv.AppendUint(b, c.Seq, 10)
	if c.Fence.Known() && c.Seq > 0 {
		b = append(b, '-')
		b = append(b, c.Fence[:]...)
	}
	return b
}

// ParseCursor reads <epoch>-<seq>-<fence>, <epoch>-<seq>, or a bare decimal
// seq (its Epoch is then empty). Only canonical text is taken: upper case, no
// sign, no leading zeros. The error has [CodeInvalid].
func ParseCursor(s string) (Cursor, error) {
	bad := func() (Cursor, error) {
		return Cursor{}, invalid("cursor", "want <epoch>-<seq>-<fence>, <epoch>-<seq> or <seq>")
	}
	if len(s) >= 64 {
		return bad()
	}
	parts := strings.Split(s, "-")
	if len(parts) == 1 {
		seq, ok := parseSeq(parts[0])
		if !ok {
			return bad()
		}
		return Cursor{Position: Position{Seq: seq}}, nil
	}
	if len(parts) > 3 || !validEpoch(parts[0]) {
		return bad()
	}
	seq, ok := parseSeq(parts[1])
	if !ok {
		return bad()
	}
	c := Cursor{Epoch: Epoch(parts[0]), Position: Position{Seq: seq}}
	if len(parts) == 3 {
		if c.Fence, ok = ParseFence(parts[2]); !ok {
			return bad()
		}
		if seq == 0 { // no event, so no fence
			c.Fence = Fence{}
		}
	}
	return c, nil
}

func parseSeq(s string) (uint64, bool) {
	if len(s) == 0 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

func validEpoch(s string) bool {
	id, err := ulid.ParseStrict(s)
	return err == nil && id.String() == s
}
