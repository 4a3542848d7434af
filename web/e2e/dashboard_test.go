//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

const rows = `document.querySelectorAll("#rows tr.event").length`

// textOf is an expression for the text of an element.
func textOf(id string) string { return fmt.Sprintf("document.getElementById(%q).textContent", id) }

// The dashboard shows what is published, proves a resume by itself, asks nobody but the gateway, and complains of nothing.
func TestDashboard(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		page := b.open(t, g.url+"/", openOptions{dark: true, width: 1200})
		page.wait(`document.documentElement.dataset.phase === "live"`)
		page.wait(textOf("epoch") + ` === "` + g.status().Epoch + `"`)
		g.publish(orders(1, 5)...)
		page.wait(rows + " >= 6") // and server.status
		page.wait(textOf("head") + ` === "6"`)

		page.click("#cut")
		page.wait(`document.getElementById("cut-answer").dataset.kind === "good"`)
		g.publish(orders(6, 5)...)
		page.wait(rows + " >= 11")
		page.wait(textOf("seen") + ` === "11"`)
		for id, want := range map[string]string{"missed": "0", "repeated": "0"} {
			var got string
			if page.eval(&got, textOf(id)); got != want {
				t.Errorf("%s: %s", id, got)
			}
		}
		var answer string
		if page.eval(&answer, textOf("cut-answer")); !strings.Contains(answer, "Resumed from seq") {
			t.Errorf("after the cut the page says %q", answer)
		}
		var newest string
		page.eval(&newest, `document.querySelector("#rows tr.event").innerText`)
		if !strings.Contains(newest, "order.created") || !strings.Contains(newest, "orders.eu") {
			t.Errorf("the newest row reads %q", newest)
		}

		// No question to anybody else, nothing on the console, dark where the reader asked for dark.
		log := page.log()
		if len(log.Requests) < 4 {
			t.Errorf("only %d requests were seen", len(log.Requests))
		}
		for _, request := range log.Requests {
			if !strings.HasPrefix(request, g.url+"/") && !strings.HasPrefix(request, "data:") {
				t.Errorf("a request to %s", request)
			}
		}
		for _, m := range log.Console {
			t.Errorf("on the console: %s: %s", m.Level, m.Text)
		}
		for _, e := range log.Errors {
			t.Errorf("thrown in the page: %s", e)
		}
		if l := brightness(page); l > 0.3 {
			t.Errorf("dark mode has a background of brightness %.2f", l)
		}

		// A restart begins a new timeline: the page starts over and says why.
		g.stop(syscall.SIGTERM)
		g.start()
		g.publish(orders(1, 1)...)
		page.wait(textOf("resync") + `.startsWith("epoch_changed")`)
		page.wait(rows + " === 2")
		page.wait(textOf("epoch") + ` === "` + g.status().Epoch + `"`)
	})
}

// Light is the default, and everything can be reached and done with the keyboard alone.
func TestDashboardByKeyboard(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		page := b.open(t, g.url+"/", openOptions{width: 400})
		page.wait(`document.documentElement.dataset.phase === "live"`)
		if l := brightness(page); b.kind == "chromium" && l < 0.7 {
			t.Errorf("light mode has a background of brightness %.2f", l)
		}
		var wide bool
		if page.eval(&wide, "document.documentElement.scrollWidth > innerWidth"); wide {
			t.Error("at the width of a phone the page scrolls sideways")
		}

		// In the order of the page: beyond its last element Tab leaves for the browser's own buttons.
		page.wait(rows + " >= 1")
		page.tabTo(`document.activeElement.closest("tr.event")`)
		page.press("Enter")
		page.wait(`!document.getElementById("detail").hidden`)
		page.press("Escape")
		page.wait(`document.getElementById("detail").hidden`)

		page.tabTo(`document.activeElement.id === "cut"`)
		page.press("Enter")
		page.wait(`document.getElementById("cut-answer").dataset.kind === "good"`)

		page.tabTo(`document.activeElement.closest("#publish") && document.activeElement.type === "submit"`)
		page.press("Enter")
		page.wait(`document.getElementById("publish-answer").dataset.kind === "good"`)
		page.wait(rows + " >= 2")
	})
}

// Where the server asks for a key, the page says so in words, takes the key, and then does what was asked.
func TestDashboardWithKey(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t, "--publish-key", "swordfish")
		page := b.open(t, g.url+"/")
		page.wait(`document.documentElement.dataset.phase === "live"`)
		for id, button := range map[string]string{"publish-answer": "#publish [type=submit]", "cut-answer": "#cut"} {
			page.click(button)
			page.wait(`document.getElementById("` + id + `").dataset.kind === "bad"`)
			var text string
			if page.eval(&text, textOf(id)); !strings.Contains(text, "key") {
				t.Errorf("without the key %s says %q", id, text)
			}
		}
		page.eval(nil, `(() => { key.value = "swordfish"; key.dispatchEvent(new Event("input")) })()`)
		for id, button := range map[string]string{"publish-answer": "#publish [type=submit]", "cut-answer": "#cut"} {
			page.click(button)
			page.wait(`document.getElementById("` + id + `").dataset.kind === "good"`)
		}
		page.wait(rows + " >= 2")
	})
}

// tabTo presses Tab until a condition on the focused element holds.
func (p *tab) tabTo(condition string) {
	p.t.Helper()
	for range 40 {
		p.press("Tab")
		var there bool
		if p.eval(&there, "!!("+condition+")"); there {
			return
		}
	}
	p.t.Fatalf("%s: Tab never reaches %s", p.b.kind, condition)
}

// brightness of the page's background, 0 to 1.
func brightness(p *tab) float64 {
	p.t.Helper()
	var value float64
	p.eval(&value, `(() => {
		const canvas = document.createElement("canvas").getContext("2d");
		for (const element of [document.body, document.documentElement]) {
			canvas.clearRect(0, 0, 1, 1);
			canvas.fillStyle = getComputedStyle(element).backgroundColor;
			canvas.fillRect(0, 0, 1, 1);
			const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
			if (a > 0) return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
		}
		return 1;
	})()`)
	return value
}

// The ten-line page of the README appends, resumes after a cut, and begins anew on a snapshot.
func TestExamplePage(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		g.publish(orders(1, 3)...)
		page := b.open(t, g.url+"/example")
		lines := textOf("log") + `.split("\n").filter(Boolean)`
		page.wait(lines + ".length === 3")
		page.eval(nil, `window.before = 1`) // still there afterwards: the page was never loaded again

		g.cut(g.connections()[0])
		g.publish(orders(4, 2)...)
		page.wait(lines + ".length === 5")

		g.stop(syscall.SIGTERM)
		g.start()
		g.publish(orders(100, 2)...)
		page.wait(lines + ".length === 2")
		g.publish(orders(102, 1)...)
		page.wait(lines + ".length === 3")

		var shown []string
		page.eval(&shown, lines)
		list := make([]sighting, len(shown))
		log := g.events("topic", "orders.>")
		for i, line := range shown {
			list[i] = sighting{Type: "message", ID: log[min(i, len(log)-1)].Cursor, Data: line}
		}
		sameAsLog(t, list, log)
		var stayed bool
		if page.eval(&stayed, "window.before === 1"); !stayed {
			t.Error("the page was loaded again")
		}
		for _, e := range page.log().Errors {
			t.Errorf("thrown in the page: %s", e)
		}
	})
}
