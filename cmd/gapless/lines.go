package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/oklog/ulid/v2"
)

// Bounds of one request of a stream, and of one line.
const (
	requestLines = 500
	requestBytes = 1 << 20
	lineBytes    = 32 << 20
)

// receipt is the gateway's answer to a stream, and what publish prints of
// all its requests together.
type receipt struct {
	Epoch      string `json:"epoch"`
	Accepted   int    `json:"accepted"`
	Duplicates int    `json:"duplicates"`
	FirstSeq   uint64 `json:"first_seq"`
	LastSeq    uint64 `json:"last_seq"`
}

// add takes up what one more request came to. Seqs mean something in one
// epoch only: with a new one the range begins anew.
func (r *receipt) add(part receipt) {
	r.Accepted += part.Accepted
	r.Duplicates += part.Duplicates
	if part.LastSeq == 0 {
		return
	}
	if part.Epoch != r.Epoch {
		r.Epoch, r.FirstSeq, r.LastSeq = part.Epoch, part.FirstSeq, part.LastSeq
		return
	}
	r.FirstSeq = min(r.FirstSeq, part.FirstSeq)
	r.LastSeq = max(r.LastSeq, part.LastSeq)
}

// publishLines sends stdin to the gateway: what has come, as soon as the
// request before is answered.
func (c *publishCommand) publishLines(ctx context.Context, con *console, cl *client, retry *retrier) error {
	input := make(chan []byte, requestLines)
	failed := make(chan error, 1)
	go func() { failed <- readLines(con.in, input) }()

	// A run's ids are its own: K:line, from the key of each request.
	run := ulid.Make().String()
	query := url.Values{}
	for name, value := range map[string]string{"type": c.Type, "topic": c.Topic} {
		if value != "" {
			query.Set(name, value)
		}
	}
	total, sent := receipt{}, 0
	progress := newProgress(con)
	defer progress.end()
	for request := 1; ; request++ {
		lines, err := nextLines(ctx, input)
		if err != nil {
			return stopped(con, progress, total, err)
		}
		if len(lines) == 0 {
			break
		}
		header := http.Header{
			"Content-Type":    {"application/x-ndjson"},
			"Idempotency-Key": {fmt.Sprintf("%s-%d", run, request)},
		}
		body := append(bytes.Join(lines, []byte("\n")), '\n')
		var part receipt
		err = retry.do(ctx, func(ctx context.Context) error {
			part = receipt{}
			return cl.post(ctx, query, header, body, &part)
		})
		if refused := (*apiError)(nil); errors.As(err, &refused) && refused.Line > 0 {
			total.add(refused.receipt)
			err = fmt.Errorf("line %d: %w", sent+refused.Line, err)
		}
		if err != nil {
			return stopped(con, progress, total, err)
		}
		total.add(part)
		sent += len(lines)
		progress.add(len(lines), len(body))
	}
	if err := <-failed; err != nil {
		return stopped(con, progress, total, err)
	}
	progress.end()
	return printReceipt(con, total)
}

// stopped prints what was published before the failure.
func stopped(con *console, progress *progress, total receipt, err error) error {
	progress.end()
	if printErr := printReceipt(con, total); printErr != nil {
		return printErr
	}
	return err
}

func printReceipt(con *console, total receipt) error {
	text, err := json.Marshal(total)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(con.out, "%s\n", text)
	return err
}

// readLines sends every line of the input, without its end, and closes the
// channel. A last line without an end counts.
func readLines(in io.Reader, lines chan<- []byte) error {
	defer close(lines)
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 0, 64<<10), lineBytes)
	n := 0
	for scanner.Scan() {
		n++
		lines <- bytes.Clone(scanner.Bytes())
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d bytes", n+1, lineBytes)
	} else if err != nil {
		return fmt.Errorf("reading stdin: %w", err)
	}
	return nil
}

// nextLines waits for a line and takes what else is there, up to the bounds
// of a request. No lines: the input has ended.
func nextLines(ctx context.Context, input <-chan []byte) ([][]byte, error) {
	var lines [][]byte
	size := 0
	select {
	case line, ok := <-input:
		if !ok {
			return nil, nil
		}
		lines, size = append(lines, line), len(line)
	case <-ctx.Done():
		return nil, errInterrupted
	}
	for len(lines) < requestLines && size < requestBytes {
		select {
		case line, ok := <-input:
			if !ok {
				return lines, nil
			}
			lines, size = append(lines, line), size+len(line)
		default:
			return lines, nil
		}
	}
	return lines, nil
}
