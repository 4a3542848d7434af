package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes, written plainly or in binary units: 4096, 64KiB,
// 16MiB, 1GiB.
type size int64

type sizeUnit struct {
	suffix string
	bytes  int64
}

// sizeUnits, largest first.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *size) UnmarshalText(text []byte) error {
	digits, unit := string(text), int64(1)
	for _, u := range sizeUnits() {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return fmt.Errorf("%q is no size: want bytes, or a whole number of KiB, MiB, GiB or TiB, such as 16MiB", text)
	}
	*s = size(int64(n) * unit)
	return nil
}

// String writes the size in the largest unit that divides it.
func (s size) String() string {
	for _, u := range sizeUnits() {
		if s != 0 && u.bytes > 1 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// optionalSize is a size whose default is known only later.
type optionalSize struct {
	size
	set bool
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *optionalSize) UnmarshalText(text []byte) error {
	s.set = true
	return s.size.UnmarshalText(text)
}
