package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gapless/feed"
)

// A child is this test binary run again, to be killed, starved, or locked
// out. The variable says what it does, and with which file.
const childVariable = "GAPLESS_TEST_CHILD"

// TestChild is what a child does; without a parent it has nothing to do.
func TestChild(t *testing.T) {
	what, path, _ := strings.Cut(os.Getenv(childVariable), ":")
	switch what {
	case "open":
		s, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("opened")
		s.Close()
	case "append":
		childAppends(t, path)
	}
}

type child struct {
	*testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

// startChild starts one, which the test's end kills.
func startChild(t *testing.T, what, path string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^Test(Starving)?Child$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), childVariable+"="+what+":"+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &child{T: t, cmd: cmd, out: bufio.NewScanner(out)}
	t.Cleanup(c.kill)
	return c
}

// line is the child's next line; empty at its end.
func (c *child) line() string {
	c.out.Scan()
	return c.out.Text()
}

// kill ends the child as kill -9 does, and waits for it.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		c.wait()
	}
}

func (c *child) wait() {
	for c.out.Scan() {
	}
	_ = c.cmd.Wait()
}

// childAppends publishes for ever from several goroutines, and prints each
// event once it is acknowledged.
func childAppends(t *testing.T, path string) {
	s, err := Open(context.Background(), Config{Path: path, Retention: feed.Retention{Events: 5000}})
	if err != nil {
		fmt.Println("cannot open:", err)
		return
	}
	if cause := s.guardCause(); cause != "" {
		fmt.Println("shut:", cause)
		return
	}
	const publishers = 8
	acknowledged := make(chan string, publishers)
	for p := range publishers {
		go func() {
			for n := 0; ; n++ {
				drafts := make([]feed.Draft, 1+n%5)
				for i := range drafts {
					drafts[i] = feed.Draft{
						ID: fmt.Sprintf("%d-%d-%d-%d", os.Getpid(), p, n, i), Type: "made", Topic: fmt.Sprint("t.", p),
						Data: json.RawMessage(`"` + strings.Repeat("x", 300) + `"`),
					}
				}
				receipt, err := s.Append(context.Background(), drafts)
				if err != nil {
					acknowledged <- "failed: " + err.Error()
					return
				}
				for i, a := range receipt.Events {
					acknowledged <- fmt.Sprintf("%d %s", a.Seq, drafts[i].ID)
				}
			}
		}()
	}
	for line := range acknowledged {
		fmt.Println(line)
	}
}
