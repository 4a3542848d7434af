package lawtest

import (
	"fmt"
	"strconv"
	"strings"
)

// position is what a cursor says: an event of one epoch, or with seq 0 the place before the first.
type position struct {
	epoch string
	seq   uint64
	fence string
}

// String is the position in words.
func (p position) String() string {
	if p.seq == 0 {
		return "epoch " + p.epoch
	}
	return fmt.Sprintf("seq %d of epoch %s", p.seq, p.epoch)
}

// parseCursor reads "<epoch>-<seq>" or "<epoch>-<seq>-<fence>".
func parseCursor(s string) (position, bool) {
	parts := strings.Split(s, "-")
	if len(s) >= 64 || len(parts) < 2 || len(parts) > 3 || !alphanumeric(parts[0]) {
		return position{}, false
	}
	seq, ok := parseSeq(parts[1])
	if !ok {
		return position{}, false
	}
	p := position{epoch: parts[0], seq: seq}
	if len(parts) == 3 {
		p.fence = parts[2]
		if !alphanumeric(p.fence) {
			return position{}, false
		}
	}
	return p, true
}

func parseSeq(s string) (uint64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

func alphanumeric(s string) bool {
	return s != "" && strings.Trim(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// sent is what the cursor of a subscribe asks for.
type sent int

const (
	sentNothing    sent = iota // no cursor, or seq 0: begin as start says
	sentPosition               // go on behind a position
	sentUnservable             // unreadable, or a number without an epoch: must end in a resync
)

// asked reads the cursor that a subscribe record sent.
func (r *Record) asked() (position, sent) {
	if r.Cursor == "" {
		return position{}, sentNothing
	}
	p, ok := parseCursor(r.Cursor)
	if !ok {
		seq, bare := parseSeq(r.Cursor)
		if !bare {
			return position{}, sentUnservable
		}
		p = position{epoch: r.Epoch, seq: seq}
	}
	switch {
	case p.seq == 0:
		return position{}, sentNothing
	case p.epoch == "":
		return position{}, sentUnservable
	}
	return p, sentPosition
}

// place is the position that a record of any kind carries: its own fields, completed from its cursor.
func (r *Record) place() position {
	c, _ := parseCursor(r.Cursor)
	p := position{epoch: r.Epoch, seq: r.Seq, fence: r.Fence}
	if p.epoch == "" {
		p.epoch = c.epoch
	}
	if p.seq == 0 {
		p.seq = c.seq
	}
	if p.fence == "" {
		p.fence = c.fence
	}
	return p
}
