// Package server is the HTTP side of the gateway: it publishes to, reads from
// and streams one feed.Feed. It knows no store and no page: the feed comes
// ready made, and the dashboard as an http.Handler.
//
// # What it guarantees
//
//   - A stream that was accepted carries the subscriber's frames as they are,
//     in order, and ends after the last of them with a clean end of body: the
//     last chunk and a FIN, never a reset.
//   - Every write of a stream has a deadline that is renewed for each piece of
//     at most 16 KiB, so that a large event reaches a slow reader and a reader
//     that takes nothing is cut. Any failed write, flush or deadline ends the
//     stream.
//   - A request to /events is refused with a status other than 200 only where
//     its query is wrong, or to a client that is no event stream reader.
//   - A publish is answered with success only when its events are stored.
//   - What an operator needs to mend a store (its restore status, finalizing,
//     backups, the audit trail) is answered also while the feed does not serve.
//   - Neither payloads, nor query strings, nor cursors, nor keys are logged.
package server
