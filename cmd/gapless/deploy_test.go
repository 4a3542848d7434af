package main

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// deployed is one process of a deployment file: the arguments and the
// variables that it is started with.
type deployed struct {
	file string
	name string
	args []string
	env  map[string]string
	stop time.Duration // between SIGTERM and SIGKILL; 0: the file does not say
}

// commands are those of the program, by what is typed for them.
func commands(node *kong.Node, prefix string, into map[string]*kong.Node) map[string]*kong.Node {
	for _, child := range node.Children {
		name := strings.TrimSpace(prefix + " " + child.Name)
		into[name] = child
		commands(child, name, into)
	}
	return into
}

// A deployment file starts commands that exist, with values that they accept,
// and gives a stop the time that it takes.
func TestDeploymentFilesStartWhatExists(t *testing.T) {
	known := commands(model(t).Node, "", map[string]*kong.Node{})
	processes := slices.Concat(kubernetesProcesses(t), composeProcesses(t), systemdProcesses(t))
	served := 0
	for _, p := range processes {
		t.Run(filepath.Base(p.file)+"/"+p.name, func(t *testing.T) {
			command := known[p.args[0]]
			if command == nil {
				t.Fatalf("there is no command %q", p.args[0])
			}
			for name := range p.env {
				if !takes(command, name) {
					t.Errorf("gapless %s takes no %s", p.args[0], name)
				}
			}
			if p.args[0] != "serve" {
				return
			}
			served++
			f := settingsOf(t, p)
			if need := f.DrainDelay + f.DrainTimeout; p.stop <= need {
				t.Errorf("it is killed %v after it was told to stop; that takes up to %v", p.stop, need)
			}
		})
	}
	if served != 6 {
		t.Errorf("%d gateways in the deployment files, want 6", served)
	}
}

// takes reports whether a command reads a variable.
func takes(command *kong.Node, variable string) bool {
	return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return slices.Contains(f.Envs, variable) })
}

// settingsOf reads what a process would serve with. Files that it names are
// secrets that only its machine has: a test's own stand for them.
func settingsOf(t *testing.T, p deployed) serveFlags {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "GAPLESS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range p.env {
		if strings.HasSuffix(name, "_FILE") {
			content := "key"
			if name == "GAPLESS_STORE_FILE" {
				content = "postgres://gapless:secret@db.example.com/events"
			}
			value = filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(value, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(name, value)
	}
	parser := newParser(t.Context(), &console{out: io.Discard, err: io.Discard}, "test")
	parsed, err := parser.Parse(p.args)
	if err != nil {
		t.Fatal(err)
	}
	f := parsed.Selected().Target.Addr().Interface().(*serveCommand).serveFlags
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	return f
}

// container is what the files say about one, in Kubernetes' words.
type container struct {
	Name  string
	Args  []string
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	LivenessProbe  *probe  `yaml:"livenessProbe"`
	ReadinessProbe *probe  `yaml:"readinessProbe"`
	VolumeMounts   []mount `yaml:"volumeMounts"`
}

type mount struct {
	Name      string
	MountPath string `yaml:"mountPath"`
	ReadOnly  bool   `yaml:"readOnly"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

type volume struct {
	Name  string
	Claim struct {
		Name string `yaml:"claimName"`
	} `yaml:"persistentVolumeClaim"`
}

type labels map[string]string

// object is one document of a Kubernetes file.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Replicas int
		Strategy struct{ Type string }
		Selector yaml.Node
		Template struct {
			Metadata struct{ Labels labels }
			Spec     struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []container
				Volumes                       []volume
			}
		}
		Ports []struct {
			TargetPort string `yaml:"targetPort"`
		}
	}
}

func kubernetesProcesses(t *testing.T) []deployed {
	t.Helper()
	files, err := filepath.Glob(deployDir + "kubernetes/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d Kubernetes files: %v", len(files), err)
	}
	var found []deployed
	for _, file := range files {
		for _, o := range kubernetesObjects(t, file) {
			pod := o.Spec.Template.Spec
			for _, c := range pod.Containers {
				p := deployed{file: file, name: c.Name, args: c.Args, env: map[string]string{},
					stop: time.Duration(pod.TerminationGracePeriodSeconds) * time.Second}
				for _, e := range c.Env {
					if p.env[e.Name] = e.Value; e.Value == "" {
						p.env[e.Name] = "from-the-cluster"
					}
				}
				found = append(found, p)
			}
		}
	}
	return found
}

func kubernetesObjects(t *testing.T, file string) []object {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var objects []object
	for decoder := yaml.NewDecoder(f); ; {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, o)
	}
}

// What belongs together in a Kubernetes file names each other, and a store
// with one owner is never given two, and a place for its backups.
func TestKubernetesFilesHoldTogether(t *testing.T) {
	files, err := filepath.Glob(deployDir + "kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		objects := kubernetesObjects(t, file)
		var gateway object
		for _, o := range objects {
			if o.Kind == "Deployment" {
				gateway = o
			}
		}
		if len(gateway.Spec.Template.Spec.Containers) != 1 {
			t.Fatalf("%s: no Deployment of one container", file)
		}
		c := gateway.Spec.Template.Spec.Containers[0]
		if shared := strings.Contains(file, "postgres"); shared != (gateway.Spec.Replicas > 1) || shared != (gateway.Spec.Strategy.Type != "Recreate") {
			t.Errorf("%s: %d replicas, strategy %s", file, gateway.Spec.Replicas, gateway.Spec.Strategy.Type)
		}
		if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%s: liveness has to look at /healthz and readiness at /readyz", file)
		}
		if len(c.Ports) != 1 || c.Ports[0].Name != "http" || c.Ports[0].ContainerPort != 8080 ||
			c.LivenessProbe.HTTPGet.Port != "http" || c.ReadinessProbe.HTTPGet.Port != "http" {
			t.Errorf("%s: the port is not called http, and 8080, everywhere", file)
		}
		for _, o := range objects {
			pods := gateway.Spec.Template.Metadata.Labels
			selector := labels{}
			switch o.Kind {
			case "Service":
				if err := o.Spec.Selector.Decode(&selector); err != nil || len(o.Spec.Ports) != 1 || o.Spec.Ports[0].TargetPort != "http" {
					t.Errorf("%s: the Service does not lead to the port http: %v", file, err)
				}
			case "Deployment", "PodDisruptionBudget":
				var match struct {
					MatchLabels labels `yaml:"matchLabels"`
				}
				if err := o.Spec.Selector.Decode(&match); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				selector = match.MatchLabels
			default:
				continue
			}
			if !maps.Equal(selector, pods) {
				t.Errorf("%s: the %s selects %v, the gateway's pods are %v", file, o.Kind, selector, pods)
			}
		}
		for _, v := range gateway.Spec.Template.Spec.Volumes {
			if v.Claim.Name != "" && !slices.ContainsFunc(objects, func(o object) bool {
				return o.Kind == "PersistentVolumeClaim" && o.Metadata.Name == v.Claim.Name
			}) {
				t.Errorf("%s: there is no claim %s", file, v.Claim.Name)
			}
		}
		for _, e := range c.Env {
			if e.Name != "GAPLESS_STORE" || !strings.HasPrefix(e.Value, "sqlite:") {
				continue
			}
			for _, path := range []string{filepath.Dir(strings.TrimPrefix(e.Value, "sqlite:")), "/backups"} {
				if !slices.ContainsFunc(c.VolumeMounts, func(m mount) bool { return m.MountPath == path && !m.ReadOnly }) {
					t.Errorf("%s: it may not write to %s", file, path)
				}
			}
		}
		for _, o := range objects {
			pod := o.Spec.Template.Spec
			for _, c := range pod.Containers {
				for _, mount := range c.VolumeMounts {
					if !slices.ContainsFunc(pod.Volumes, func(v volume) bool { return v.Name == mount.Name }) {
						t.Errorf("%s: %s mounts %s, which is no volume", file, c.Name, mount.Name)
					}
				}
			}
		}
	}
}

func composeProcesses(t *testing.T) []deployed {
	t.Helper()
	file := deployDir + "compose.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Environment map[string]string
			StopAfter   string `yaml:"stop_grace_period"`
			Secrets     []string
		}
		Secrets map[string]struct{ File string }
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	var found []deployed
	for name, s := range compose.Services {
		for _, secret := range s.Secrets {
			if compose.Secrets[secret].File == "" {
				t.Errorf("%s: there is no secret %s", name, secret)
			}
		}
		for variable, value := range s.Environment {
			if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok && !slices.Contains(s.Secrets, secret) {
				t.Errorf("%s: %s is %s, and that secret is not given to it", name, variable, value)
			}
		}
		if !strings.HasPrefix(s.Image, "gapless:") {
			continue
		}
		p := deployed{file: file, name: name, args: s.Command, env: s.Environment}
		if s.StopAfter != "" {
			if p.stop, err = time.ParseDuration(s.StopAfter); err != nil {
				t.Error(err)
			}
		}
		found = append(found, p)
	}
	// nginx gets the configuration of this folder with another address in it.
	nginx, err := os.ReadFile(deployDir + "nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	replace := regexp.MustCompile(`sed 's/([^/]+)/`).FindStringSubmatch(strings.Join(compose.Services["nginx"].Command, " "))
	if replace == nil || strings.Count(string(nginx), replace[1]) != 1 {
		t.Errorf("nginx.conf does not hold what compose.yaml replaces: %q", replace)
	}
	return found
}

func systemdProcesses(t *testing.T) []deployed {
	t.Helper()
	file := deployDir + "gapless.service"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := deployed{file: file, name: "unit", env: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ExecStart":
			p.args = strings.Fields(value)[1:]
		case "Environment":
			variable, value, _ := strings.Cut(value, "=")
			p.env[variable] = value
		case "TimeoutStopSec":
			if p.stop, err = time.ParseDuration(value); err != nil {
				t.Error(err)
			}
		}
	}
	return []deployed{p}
}
