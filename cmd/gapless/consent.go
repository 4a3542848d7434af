package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// consent asks before what cannot be undone. Without a terminal there is
// nobody to be asked: --yes has to say it.
func (con *console) consent(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !con.inTerminal || !con.errTerminal {
		return usageErrorf("%s Nobody can be asked here: repeat it with --yes", question)
	}
	fmt.Fprintf(con.err, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // a read of a terminal ends with the process, not with ctx
		line, _ := bufio.NewReader(con.in).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(con.err)
		return errInterrupted
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return fmt.Errorf("nothing was done")
	}
}
