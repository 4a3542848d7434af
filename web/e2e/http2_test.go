//go:build e2e

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// HTTP/2 and TLS on the browser's side, as on the web.
func TestHTTP2(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		n := startNginx(t, "worker_shutdown_timeout 1s;", func(addr, prefix string) string {
			writeCertificate(t, prefix)
			return fmt.Sprintf(`
log_format protocol '$server_protocol $uri';
server {
  listen %s ssl http2;
  ssl_certificate %[2]s/cert.pem;
  ssl_certificate_key %[2]s/key.pem;
  access_log %[2]s/access.log protocol;
  location = /recorder.html { root %[2]s/html; }
  location / { proxy_pass http://%[3]s; }
}`, addr, prefix, g.addr)
		})
		origin := "https://" + n.addr
		page := b.open(t, recorderAt(origin, "/events", "order.created", "server.status"))
		page.wait(holds("server.live", 1))
		for i := range 3 {
			last := g.publish(orders(i+1, 1)...)
			page.wait(holdsSeq(g.status().Epoch, last))
		}
		// More streams than HTTP/1.1 allows one page's host, all alive at once.
		more := []*tab{}
		for range 7 {
			p := b.open(t, recorderAt(origin, "/events", "order.created", "server.status"))
			p.wait(holds("order.created", 3))
			more = append(more, p)
		}
		n.reload()
		g.publish(orders(4, 200)...)
		page.wait(holds("server.connected", 2))
		page.wait(holds("order.created", 203))
		settle(t, page)
		for _, p := range append(more, page) {
			p.wait(holds("order.created", 203))
			seen := p.testimony()
			same(t, "resyncs", seen.reasons(t, "resync_required"))
			sameAsLog(t, seen.list(t), g.events())
			neverTwice(t, seen)
		}
		eventually(t, "nginx logs the first stream", func() bool {
			return strings.Contains(n.read("access.log"), "HTTP/2.0 /events")
		})
		if strings.Contains(n.read("access.log"), "HTTP/1.1 /events") {
			t.Error("a stream came over HTTP/1.1")
		}
	})
}

// writeCertificate makes a self-signed certificate for 127.0.0.1.
func writeCertificate(t *testing.T, folder string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "gapless test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
