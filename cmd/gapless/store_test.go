package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

func TestStoreNames(t *testing.T) {
	for text, want := range map[string]storeName{
		"memory:":                   {kind: storeMemory},
		"memory":                    {kind: storeMemory},
		"sqlite:a.db":               {storeSQLite, "a.db"},
		"sqlite:/a b/c.db":          {storeSQLite, "/a b/c.db"},
		"sqlite:///var/c.db":        {storeSQLite, "/var/c.db"},
		"sqlite:C:/c.db":            {storeSQLite, "C:/c.db"},
		"postgres://h/d":            {storePostgres, "postgres://h/d"},
		"postgresql://u:p@h,i:1/d":  {storePostgres, "postgresql://u:p@h,i:1/d"},
		"postgres:///d?host=/run/x": {storePostgres, "postgres:///d?host=/run/x"},
	} {
		got, err := parseStore(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "a.db", "memory:x", "sqlite", "sqlite:", "sqlite://a.db", "sqlite::memory:", "sqlite:file:a.db", "sqlite:a.db?mode=ro",
		"postgres:", "postgres://", "postgres", "mysql://u:s3cret@h/d", "nats://h", "relay:http://h", "SQLITE:a.db", "postgres:u:s3cret@h",
		"postgresql:u:s3cret@h/d", "postgres:/u:s3cret@h", "host=x password=s3cret", "host=x:1 password=s3cret", "s3cret", "s3cret:x", "s3cret:/x", "-s3cret://x", "a s3cret://x",
		"u:s3cret@h/d", "nats:u:s3cret@h", "relay:http://u:s3cret@h", "//u:s3cret@h/d", "Postgres://u:s3cret@h/d", "postgres //u:s3cret@h/d",
	} {
		if got, err := parseStore(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}

// Whatever a URL looks like, its password is not shown.
func TestPasswordsAreMasked(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://u:s3cret@h:1/d":                       "postgres://u:********@h:1/d",
		"postgres://u:s3cret@h1:1,h2:2/d":                 "postgres://u:********@h1:1,h2:2/d",
		"postgres://u:s3@cret@h/d":                        "postgres://u:********@h/d",
		"postgres://u:s3/cret@h/d":                        "postgres://u:********@h/d",
		"postgres://u:s3?cret#@h/d":                       "postgres://u:********@h/d",
		"postgres://u@h/d?password=s3cret&sslmode=prefer": "postgres://u@h/d?password=********&sslmode=prefer",
		"postgres://u@h/d?a=b&PASSWORD=s3cret":            "postgres://u@h/d?a=b&PASSWORD=********",
		"postgres://u@h/d?pass%77ord=s3cret&a=b":          "postgres://u@h/d?pass%77ord=********&a=b",
		"postgres://u@h/d?a=b%26password=s3cret":          "postgres://u@h/d?a=********",
		"postgres://u@h/d?password=s3%zz=cret":            "postgres://u@h/d?password=********",
		"postgres://u@h/d?sslpassword=s3cret#s3":          "postgres://u@h/d?sslpassword=********",
		"postgres://:s3cret@h/d":                          "postgres://:********@h/d",
		"postgres://u@h/d":                                "postgres://u@h/d",
		"postgres://h:1/d":                                "postgres://h:1/d",
	} {
		if got := maskStore(text); got != want || strings.Contains(got, "s3") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if name, err := parseStore(text); err != nil || name.hasSecret() != (text != want) || name.String() != want {
			t.Errorf("%s: %v, %v, %v", text, name, name.hasSecret(), err)
		}
	}
}

func TestDefaultRetentionIsTheStores(t *testing.T) {
	if got, want := (storeName{kind: storeMemory}).defaultRetention(), (feed.Retention{Events: 1024, Bytes: 256 << 20}); got != want {
		t.Errorf("memory: %+v", got)
	}
	for _, kind := range []storeKind{storeSQLite, storePostgres} {
		if got, want := (storeName{kind: kind}).defaultRetention(), (feed.Retention{Events: 1_000_000, Bytes: 1 << 30}); got != want {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

// What stands on the command line wins over the environment, and there the
// store over the gateway.
func TestWhichTargetIsMeant(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("sqlite:d.db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env   string // NAME=value…
		args  string
		want  string // the store, or "gateway"
		shown string
	}{
		{"", "", "gateway", ""},
		{"", "--url http://h", "gateway", " --url http://h"},
		{"", "--store sqlite:a.db", "sqlite:a.db", " --store sqlite:a.db"},
		{"", "--store-file " + file, "sqlite:d.db", " --store-file " + file},
		{"GAPLESS_STORE=sqlite:b.db", "", "sqlite:b.db", " --store sqlite:b.db"},
		{"GAPLESS_STORE=sqlite:b.db GAPLESS_URL=http://e", "", "sqlite:b.db", " --store sqlite:b.db"},
		{"GAPLESS_STORE=sqlite:b.db", "--url http://h", "gateway", " --url http://h"},
		{"GAPLESS_URL=http://e", "", "gateway", " --url http://e"},
		{"GAPLESS_URL=http://e", "--store sqlite:a.db", "sqlite:a.db", " --store sqlite:a.db"},
		{"", "--store postgres://u:s3cret@h/d", "postgres://u:********@h/d", ` --store "$GAPLESS_STORE"`},
	} {
		t.Run(c.env+" "+c.args, func(t *testing.T) {
			for _, entry := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(entry, "=")
				t.Setenv(name, value)
			}
			parsed, err := newParser(t.Context(), &console{}, "test").Parse(append([]string{"restore", "status"}, strings.Fields(c.args)...))
			if err != nil {
				t.Fatal(err)
			}
			f := &parsed.Selected().Target.Addr().Interface().(*restoreStatusCommand).targetFlags
			if err := f.choose(parsed); err != nil {
				t.Fatal(err)
			}
			got := "gateway"
			if f.fromStore {
				name, err := f.name()
				if err != nil {
					t.Fatal(err)
				}
				got = name.String()
			}
			if got != c.want || f.arguments() != c.shown {
				t.Errorf("%s, shown as %q; want %s, %q", got, f.arguments(), c.want, c.shown)
			}
		})
	}
}
