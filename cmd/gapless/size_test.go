package main

import "testing"

func TestSizeIsReadAndWritten(t *testing.T) {
	for text, want := range map[string]struct {
		bytes int64
		again string
	}{
		"0":                   {0, "0"},
		"1":                   {1, "1"},
		"1000":                {1000, "1000"},
		"512B":                {512, "512"},
		"1024":                {1024, "1KiB"},
		"64KiB":               {64 << 10, "64KiB"},
		"16MiB":               {16 << 20, "16MiB"},
		"16 MiB":              {16 << 20, "16MiB"},
		"1024MiB":             {1 << 30, "1GiB"},
		"2TiB":                {2 << 40, "2TiB"},
		"1048577":             {1<<20 + 1, "1048577"},
		"9223372036854775807": {1<<63 - 1, "9223372036854775807"},
	} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if int64(s) != want.bytes || s.String() != want.again {
			t.Errorf("%q = %d, written %q; want %d, %q", text, s, s.String(), want.bytes, want.again)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "+1", "1.5MiB", "16MB", "16mib", "1e3", "9223372036854775808", "8388608TiB"} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, s)
		}
	}
}
