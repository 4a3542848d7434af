//go:build linux

package systemtest_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memory reads a field of the program's /proc status, such as VmHWM, in bytes.
func (g *gateway) memory(field string) int64 {
	g.t.Helper()
	for line := range strings.Lines(g.proc("status")) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				g.t.Fatal(err)
			}
			return n << 10
		}
	}
	g.t.Fatalf("/proc has no %s", field)
	return 0
}

// cpu is the processor time that the program has used.
func (g *gateway) cpu() time.Duration {
	g.t.Helper()
	_, rest, _ := strings.Cut(g.proc("stat"), ") ")
	fields := strings.Fields(rest)
	user, err1 := strconv.Atoi(fields[11]) // 14th and 15th of proc(5), in hundredths of a second
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		g.t.Fatal(err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

func (g *gateway) proc(file string) string {
	g.t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(g.process.Process.Pid) + "/" + file)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(text)
}

// output keeps what a program prints. It is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// tail is the last lines of it.
func (o *output) tail() string {
	text := o.String()
	return text[max(0, len(text)-4000):]
}

// descriptors counts the program's open files.
func (g *gateway) descriptors() int {
	g.t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(g.process.Process.Pid) + "/fd")
	if err != nil {
		g.t.Fatal(err)
	}
	return len(entries)
}
