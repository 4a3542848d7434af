//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nginx is one running nginx with a configuration and folders of its own.
type nginx struct {
	t      *testing.T
	prefix string
	addr   string // the address that its configuration listens on
}

// freeAddr returns a loopback address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// nginxPrefix makes the folders of one nginx. Its html folder holds the recorder page.
func nginxPrefix(t *testing.T) string {
	t.Helper()
	prefix := t.TempDir()
	if err := os.Mkdir(filepath.Join(prefix, "html"), 0o755); err != nil {
		t.Fatal(err)
	}
	recorder, err := os.ReadFile("recorder.html")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(prefix, "html", "recorder.html"), recorder, 0o644); err != nil {
		t.Fatal(err)
	}
	return prefix
}

// writeNginxConf writes a configuration around directives for the main and the http level. Only paths are set there,
// everything else is nginx's default.
func writeNginxConf(t *testing.T, prefix, main, http string) string {
	t.Helper()
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // the default, nobody, cannot enter the test's folder
	}
	conf := fmt.Sprintf(`
%s
daemon off;
worker_processes 1;
pid %[2]s/nginx.pid;
error_log %[2]s/error.log warn;
%[3]s
events { worker_connections 128; }
http {
  access_log off;
  client_body_temp_path %[2]s/body;
  proxy_temp_path %[2]s/proxy;
  fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi;
  scgi_temp_path %[2]s/scgi;
  types { text/html html; }
  %[4]s
}
`, user, prefix, main, http)
	path := filepath.Join(prefix, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// nginxCommand runs nginx on a prefix.
func nginxCommand(prefix string, args ...string) *exec.Cmd {
	fixed := []string{"-p", prefix, "-c", filepath.Join(prefix, "nginx.conf"), "-e", filepath.Join(prefix, "error.log")}
	return exec.Command("nginx", append(fixed, args...)...)
}

// startNginx runs nginx in the foreground until the test ends. http gets the address to listen on and the prefix.
func startNginx(t *testing.T, main string, http func(addr, prefix string) string) *nginx {
	t.Helper()
	n := &nginx{t: t, prefix: nginxPrefix(t), addr: freeAddr(t)}
	writeNginxConf(t, n.prefix, main, http(n.addr, n.prefix))
	process := nginxCommand(n.prefix)
	output := &tailBuffer{}
	process.Stdout, process.Stderr = output, output
	if err := process.Start(); err != nil {
		t.Fatalf("starting nginx: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		process.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		process.Process.Signal(os.Interrupt) // a fast shutdown, its workers too
		select {
		case <-exited:
		case <-time.After(patience):
			process.Process.Kill()
		}
		if t.Failed() {
			t.Logf("nginx printed:\n%s\n%s", output, n.read("error.log"))
		}
	})
	eventually(t, "nginx listens", func() bool {
		select {
		case <-exited:
			t.Fatalf("nginx ended at once:\n%s\n%s", output, n.read("error.log"))
		default:
		}
		conn, err := net.Dial("tcp", n.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return n
}

// stock is a server block as everybody writes it: proxy_pass and not a word on buffering, versions or timeouts.
func stock(target string, more ...string) func(addr, prefix string) string {
	return func(addr, prefix string) string {
		return fmt.Sprintf(`
server {
  listen %s;
  location = /recorder.html { root %s/html; }
  location / { proxy_pass http://%s; %s }
}`, addr, prefix, target, strings.Join(more, " "))
	}
}

// reload does what `systemctl reload nginx` does.
func (n *nginx) reload() {
	n.t.Helper()
	if out, err := nginxCommand(n.prefix, "-s", "reload").CombinedOutput(); err != nil {
		n.t.Fatalf("nginx -s reload: %v\n%s", err, out)
	}
}

// url is nginx's own origin.
func (n *nginx) url() string { return "http://" + n.addr }

// read returns the text of a file below the prefix, or nothing where there is none.
func (n *nginx) read(name string) string {
	content, err := os.ReadFile(filepath.Join(n.prefix, name))
	if err != nil {
		return ""
	}
	return string(content)
}

// shippedConf is docs/deploy/nginx.conf with the addresses and log files of a test in the place of its own.
func shippedConf(t *testing.T, addr, target, prefix string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	conf := string(content)
	for _, change := range [][2]string{
		{"listen 80;", "listen " + addr + ";"},
		{"server 127.0.0.1:8080;", "server " + target + ";"},
		{"/var/log/nginx/", prefix + "/"},
	} {
		if !strings.Contains(conf, change[0]) {
			t.Fatalf("docs/deploy/nginx.conf has no %q", change[0])
		}
		conf = strings.ReplaceAll(conf, change[0], change[1])
	}
	return conf
}
