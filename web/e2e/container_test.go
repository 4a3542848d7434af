//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// What `docker run -e GAPLESS_PUBLISH_KEY=x` gives: the binary alone on an empty root, as nobody in particular, with
// the environment of the Dockerfile. Where the tests are not root, the same without the empty root.
func TestContainer(t *testing.T) {
	image := readDockerfile(t)
	root := t.TempDir()
	binary, err := os.ReadFile(suite.binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "gapless"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	// The image listens on every address at 8080; a test takes a free port of this machine alone, which needs the key no less.
	addr := freeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	environment := []string{"GAPLESS_LISTEN=" + strings.Replace(image.env["GAPLESS_LISTEN"], "8080", port, 1),
		"GAPLESS_URL=" + strings.Replace(image.env["GAPLESS_URL"], "8080", port, 1)}

	run := func(ctx context.Context, env []string, args ...string) *exec.Cmd {
		command := exec.CommandContext(ctx, filepath.Join(root, "gapless"), args...)
		command.Env = env
		command.Dir = root
		if os.Geteuid() == 0 {
			command.Path, command.Dir = "/gapless", "/"
			command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: image.uid, Gid: image.uid}}
		}
		return command
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// Without a key it says what to set, and does not start.
	out, err := run(ctx, environment, "serve").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "GAPLESS_PUBLISH_KEY") && !strings.Contains(string(out), "publish-key") {
		t.Errorf("without a key: %v: %s", err, out)
	}

	server := run(ctx, append(environment, "GAPLESS_PUBLISH_KEY=x"), image.args...)
	output := &tailBuffer{}
	server.Stderr = output
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Logf("gapless printed:\n%s", output)
		}
	})
	ready, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(ready, "listening on ") {
		t.Fatalf("it printed %q (%v)\n%s", ready, err, output)
	}

	if out, err := run(ctx, environment, image.health...).CombinedOutput(); err != nil {
		t.Errorf("the health check: %v: %s", err, out)
	}
	url := "http://127.0.0.1:" + port
	event := `{"type":"order.created","data":{"n":1}}`
	if code, _, _ := call(t, http.MethodPost, url+"/api/v1/events", "application/json", event); code != http.StatusUnauthorized {
		t.Errorf("publishing without the key: %d, want 401", code)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/events", strings.NewReader(event))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer x")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Errorf("publishing with the key: %d", response.StatusCode)
	}
	startReader(t, "curl", "-sN", url+"/events").until(`"data":{"n":1}`)

	// docker stop
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, stdout)
	if err := server.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if out, err := run(ctx, environment, image.health...).CombinedOutput(); err == nil {
		t.Errorf("the health check of a stopped server succeeds: %s", out)
	}
}

// image is what the tests use of the Dockerfile.
type image struct {
	env          map[string]string
	uid          uint32
	args, health []string
}

func readDockerfile(t *testing.T) image {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, final, found := strings.Cut(string(content), "\nFROM scratch\n")
	if !found {
		t.Fatal("the Dockerfile's last stage is not FROM scratch")
	}
	for _, line := range []string{"USER 65532:65532", `ENTRYPOINT ["/gapless"]`, "EXPOSE 8080"} {
		if !strings.Contains(final, "\n"+line+"\n") {
			t.Errorf("the Dockerfile has no %s", line)
		}
	}
	words := func(pattern string) []string {
		match := regexp.MustCompile(pattern).FindStringSubmatch(final)
		if match == nil {
			t.Fatalf("the Dockerfile has no %s", pattern)
		}
		return strings.Split(strings.ReplaceAll(match[1], `"`, ""), ", ")
	}
	i := image{env: map[string]string{}, uid: 65532}
	for _, match := range regexp.MustCompile(`(?m)^ENV (\w+)=(\S+)$`).FindAllStringSubmatch(final, -1) {
		i.env[match[1]] = match[2]
	}
	i.args = words(`\nCMD \[(.+)\]`)
	i.health = words(`HEALTHCHECK .*CMD \["/gapless", (.+)\]`)
	return i
}

// Everything that the Dockerfile copies or builds from survives .dockerignore.
func TestDockerIgnoreKeepsTheSources(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	for pattern := range strings.SplitSeq(strings.TrimSpace(string(content)), "\n") {
		switch strings.Trim(pattern, "/") {
		case "cmd", "server", "feed", "web", "go.mod", "go.sum", "openapi.yaml", "*", "**":
			t.Errorf(".dockerignore leaves out %s, which the build needs", pattern)
		}
	}
	// A build without what the list leaves out is quickly done for real.
	source, build := filepath.Join("..", ".."), t.TempDir()
	tar := exec.Command("tar", "-C", source, "--exclude=.git", "--exclude=./.ci", "--exclude=./docs", "--exclude=./web/e2e",
		"--exclude=*_test.go", "--exclude=testdata", "--exclude=*.md", "-cf", filepath.Join(build, "context.tar"), ".")
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("tar", "-C", build, "-xf", filepath.Join(build, "context.tar")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	compile := exec.Command("go", "build", "-o", filepath.Join(build, "gapless.out"), "./cmd/gapless")
	compile.Dir = build
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("building from what .dockerignore leaves: %v\n%s", err, out)
	}
}
