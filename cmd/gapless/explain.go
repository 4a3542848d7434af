package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"gapless/feed"
)

// explain says what a guard sees, what it means, and what to do. The
// arguments name the store in the commands that it proposes.
func explain(s feed.RestoreStatus, arguments string) string {
	var b strings.Builder
	describe(&b, s)
	switch {
	case !s.Finalized:
		b.WriteString("\nThe guard keeps this store shut: " + sentence(printable(plainCause(s.Cause))) + "\n")
		b.WriteString("Nothing is served and nothing is taken, so that nobody skips events unseen.\n")
		b.WriteString("\nWhat happened? Each answer has its command.\n")
		answers(&b, s, arguments)
		b.WriteString("\nWhat the first answer would skip:\n")
		listSkips(&b, s.Skips)
	case s.Sealed:
		b.WriteString("\nThe guard is content, and a final backup has sealed this store: it takes no events.\n")
		b.WriteString("If the copy has taken over, or will, stop this one. To go on here instead, and only if the\ncopy is not in use, lift the seal and begin a new epoch:\n")
		b.WriteString("    gapless restore finalize" + arguments + "\n")
	case s.Guard == feed.GuardOff:
		b.WriteString("\nThe guard is off: a restore would go unnoticed here. Fences still protect readers of streams.\n")
	default:
		b.WriteString("\nThe guard is content: the store runs on what it remembers. There is nothing to do.\n")
	}
	if strings.Contains(arguments, storeVariable) && b.Len() > 0 && strings.Contains(b.String(), arguments) {
		b.WriteString("\nGAPLESS_STORE stands for the store's URL, whose password is not shown; --store-file FILE\ntakes it from a file.\n")
	}
	return b.String()
}

func describe(b *strings.Builder, s feed.RestoreStatus) {
	out := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	row("store", "%s, guard %s", s.Store, s.Guard)
	row("epoch", "%s", s.Epoch)
	row("log", "%s", logBounds(s))
	row("remembers", "%s", cmp.Or(s.Expected, "nothing"))
	row("runs on", "%s", cmp.Or(s.Found, "nothing"))
	_ = out.Flush() // into memory
}

func logBounds(s feed.RestoreStatus) string {
	if s.OldestSeq > s.HeadSeq {
		return fmt.Sprintf("empty, head %d", s.HeadSeq)
	}
	return fmt.Sprintf("seq %d to %d, head fence %s", s.OldestSeq, s.HeadSeq, s.HeadFence)
}

// answers lists what may have happened, the safe one first.
func answers(b *strings.Builder, s feed.RestoreStatus, arguments string) {
	fmt.Fprintf(b, `
1. I restored a backup or an older copy, or I cannot tell.
    gapless restore finalize%[1]s
   A new epoch begins. Every reader of a stream is told to resync, and every
   consumer and webhook goes on from the head. This is safe in every case.

2. I moved the store without a loss: this is the copy of a final backup
   (gapless backup --final), whose source has taken no event since.
    gapless restore finalize%[1]s --relocation DIR/manifest.json
   The epoch and every cursor stay. It is refused where the manifest does not
   agree with this log, and at the source. Whether something runs at the
   source again, nobody can see from here: that must never be.
`, arguments)
	if s.Store == string(storePostgres) {
		if isFailover(s.Expected, s.Found) {
			b.WriteString(`
3. The provider failed over to a replica of the same database cluster, and
   guarantees that nothing was lost: replication is synchronous.
    gapless serve … --restore-guard off
   One start with it takes the new place over, with its epoch and every cursor,
   and the audit trail says so. Then start without it again. Without that
   guarantee, the first answer is left.
   --restore-guard verify does this by itself, but only in a gateway that ran
   with it before the failover: one that starts behind it has seen no event to
   look for.
`)
		}
		return
	}
	b.WriteString(`
3. I moved the file of a stopped gateway, and forgot the file beside it.
   Stop what runs here, copy the file whose name ends in -witness too, and
   start again: the guard is then content by itself. Where it is lost, the
   first answer is left.
`)
}

// isFailover reports whether one identity of a PostgreSQL database may be that
// of a replica of the other which was promoted: it then has the same system
// identifier, and a later timeline.
func isFailover(from, to string) bool {
	var was, is struct {
		system             uint64
		timeline, database uint32
	}
	const form = "system %d, timeline %d, database %d"
	_, err := fmt.Sscanf(from, form, &was.system, &was.timeline, &was.database)
	_, err2 := fmt.Sscanf(to, form, &is.system, &is.timeline, &is.database)
	return err == nil && err2 == nil && was.system == is.system && was.database == is.database && was.timeline < is.timeline
}

// plainCause is what a guard says, without its hint at the command that shows
// it.
func plainCause(cause string) string {
	if i := strings.Index(strings.ToLower(cause), "nothing is served until"); i > 0 {
		cause = strings.TrimRight(cause[:i], " ;.")
	}
	return cause
}

// listSkips says of each server-side cursor what a finalize makes it miss.
func listSkips(b *strings.Builder, skips []feed.Skip) {
	if len(skips) == 0 {
		b.WriteString("    no consumer and no webhook: there are none\n")
		return
	}
	out := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, s := range skips {
		missed := "nothing: it is at the head"
		switch {
		case s.LastSeq > 0:
			missed = fmt.Sprintf("seq %d to %d (%s)", s.FirstSeq, s.LastSeq, countEvents(s.LastSeq-s.FirstSeq+1))
		case s.Lost:
			missed = "nothing that this log holds"
		}
		if s.Lost {
			missed += "; it had acknowledged events that this log does not hold"
		}
		fmt.Fprintf(out, "    %s\t%s\t%s\n", printable(s.Kind), printable(s.Name), missed)
	}
	_ = out.Flush() // into memory
}

func countEvents(n uint64) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// sentence ends a text as one.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return "it runs on something else than it remembers."
	}
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
