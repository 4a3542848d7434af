// Package upstream reads an event stream (Server-Sent Events, WHATWG HTML section 9.2) from any server and
// resumes it by itself. It is a wrapper around the client of github.com/r3labs/sse/v2, which makes the requests
// and parses the frames, one connection at a time; this package decides what reaches its parser, what is kept
// as the cursor, and when to connect again.
//
// # Guarantees
//
// Every complete event that arrives on a connection reaches the handler, once for each time it was sent, or is
// asked for again on the next one; in the order of the stream, one at a time.
//
// The cursor (LastEventID) moves past an event after its handler has returned nil, never before. What ends a
// connection or a Run in between leaves the cursor before the event, so that the next connection asks for it
// again.
//
// A block that the end of the connection has cut is never delivered, and its ID never becomes the cursor, at
// whatever byte the cut falls. A block is complete with the first byte of its blank line's end.
//
// A block without an ID keeps the last one, also across connections. An empty ID resets the cursor: the next
// request carries none. A block without data delivers nothing, but its ID and its retry field count.
//
// Any end of a connection that waiting may heal is followed by another connection, without limit of number or
// time: a clean end, an error, no answer, 408, 425, 429, any 5xx. Each wait is the server's floor (the last
// retry field, or this refusal's Retry-After if that is longer; never above Config.MaxFloor) plus full jitter
// from a window that doubles, up to Config.MaxDelay, until a stream has stayed open for Config.StableAfter. A
// caller that knows its server's events can say with Config.Settled which of them show that all is well: the wait
// after such a connection is the floor plus a jitter of up to half of it.
//
// What waiting cannot heal ends Run with a named error: 204, 401, 403, 404, 410 and other refusals, a content
// type or an encoding that is no readable event stream, an event above Config.MaxEventBytes.
//
// Run returns at once when its context ends, unless the handler is at work, and leaves no goroutine behind,
// whether it ends by context, error, panic or runtime.Goexit in the handler.
//
// Memory is bounded, whatever a server sends: an endless line or block ends the Run, endless comments are not
// kept, and a handler that is slow slows the connection down.
//
// Neither the URL, header fields, cursors nor events are logged, and no error's text holds the URL.
//
// # Not guaranteed
//
// Exactly once. The server decides what it sends after a cursor; one that does not know cursors repeats or
// omits events around each reconnect. An event whose handler failed, or whose process died before it had stored
// LastEventID, comes again.
//
// That the server says so when it cannot resume. Gapless servers do, with an event (resync_required) that
// reaches the handler like any other; the handler has to look for it.
//
// Valid UTF-8. Data, types and IDs are the bytes that were sent; the standard would replace what is invalid.
//
// IDs that no header can carry. One with a control character other than tab is ignored like one with NUL, since
// it could never be sent back; the cursor then stays at the event before.
//
// Notice of a dead path. A peer that is gone is noticed by TCP and HTTP/2 probes of the default transport; a
// proxy that keeps a dead stream open is noticed only with Config.IdleTimeout.
//
// # The library's faults, and how each is met
//
// Its scanner ends the stream at a line or block above 64 KiB: its buffer is set above the largest frame that
// the filter lets through.
//
// It searches all that it has buffered for five kinds of blank lines at every event, and takes a mixed one (LF
// CR) for none: a response body filter, put in place by an http.RoundTripper, gives it one frame a Read, with
// LF only.
//
// At the end of a stream it delivers the partial block and takes its ID over: the filter lets only complete
// blocks through.
//
// Once it has an ID, each comment becomes an event without data; blocks with only an ID, type or retry field
// always do: the filter removes comments and marks blocks without data, which then move the cursor and go no
// further.
//
// It drops an event with empty data and neither ID nor type: every frame carries a type.
//
// An empty ID does not reset its cursor, one with NUL is taken, and field names without a colon are not known
// except data: the filter interprets IDs, and each frame carries the resulting one behind a mark, so that it is
// never empty.
//
// A byte order mark hides the first field: the filter drops it, at the very start of a stream only.
//
// It moves its cursor when it has read an event, before the handler sees it: its cursor is used for one
// request, which it gets from ours.
//
// A header field of the caller's overrides its Last-Event-ID: New refuses one.
//
// It ends without reconnecting after a clean end; its backoff gives up after 15 minutes, sleeps on when the
// context has ended, and ignores retry fields and Retry-After; it reports a cancelled context as a clean end;
// it repeats requests that were answered 204 or 4xx: it makes one connection for each of our attempts, with a
// backoff that stops, and our own loop does the rest.
//
// It accepts any content type, and leaves the body open when a validator refuses the answer: our validator
// checks type, encoding and status, and closes what it refuses.
//
// Unsubscribe deadlocks while the connection waits or ends: channel subscriptions are not used, the request's
// context ends a connection.
//
// A handler that panics leaves its reader blocked for ever: the handler runs outside the library, on Run's
// goroutine.
package upstream
