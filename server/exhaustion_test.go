//go:build linux

package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const fewFilesEnv = "GAPLESS_TEST_FEW_FILES"

// TestServeWithFewFiles is the other process of the test below: a server that
// may open few files. It ends when its standard input does.
func TestServeWithFewFiles(t *testing.T) {
	if os.Getenv(fewFilesEnv) == "" {
		return
	}
	limit := unix.Rlimit{Cur: 64, Max: 64}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	g := start(t)
	fmt.Printf("serving %s\n", g.addr)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
}

// A server that has run out of file descriptors serves again when clients
// have gone.
func TestRecoversFromExhaustedFiles(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServeWithFewFiles$")
	cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	var addr string
	said := bufio.NewReader(out)
	if _, err := fmt.Fscanf(said, "serving %s\n", &addr); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, said) // ends with the process

	const n = 150
	var clients []net.Conn
	served := 0
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err) // the backlog takes them
		}
		clients = append(clients, c)
		if _, err := io.WriteString(c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			break // this one waits: the files have run out
		}
		served++
	}
	if served == 0 || served == n {
		t.Fatalf("%d of %d clients were served; the limit was not met", served, n)
	}
	for range n - len(clients) { // a crowd that waits
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		c.Close()
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || len(b) == 0 {
		t.Errorf("%q %v", b, err)
	}
}
