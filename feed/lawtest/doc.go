// Package lawtest records what clients and publishers saw, and judges from that alone whether the law was kept:
// a subscriber receives every event it asked for, in order, exactly once, or is told in the stream to resync.
//
// A [Recorder] writes one JSON line for each sighting; [ParseFrames] makes the sightings of one connection out of
// its bytes; [ReadHistory] reads them back; [Check] is a pure function of the history and touches no server. The
// package imports nothing else of this module, and has its own cursor, topic and frame readers: a judge that
// shared code with the judged would share its faults.
//
// # Terms
//
// A client is one application state. Its connections are numbered in the order in which it opened them. A fact is
// an event known to have been in the log: acknowledged to its publisher, listed in [Options].Log, or, in an epoch
// without such a list, seen by any client. A life is a stretch of a client's history through which its state
// lasts. It begins with a subscribe without a position (no cursor, or one with seq 0), with a cursor where no life
// is going on, and with a server.connected that says snapshot or live; a resync ends it. A subscribe with a
// position goes on with the life, on whichever connection. The position of a client is the greatest seq that an
// event or a bookmark has shown it, or that it sent. A bookmark is the id of connected, live, heartbeat or
// draining.
//
// # Rules
//
// Ordered. In one life, an event that was not delivered before has a greater seq than all events before it.
//
// Unique. In one life no seq is delivered twice, none at or below the position from which the life began, and no
// publish, known by topic, source and id, under two seqs.
//
// Gap-free. When a client passes from position a to position b by an event, or by the cursor that it sends, then
// each fact with a < seq < b that its filter asks for is delivered in that life. A life that begins with a
// snapshot begins at the oldest event that the log held, where the snapshot was not cut by its bound
// ([Options].SnapshotEvents, last:n, truncated); otherwise at its first event. No life holds events of two
// branches of a log that was rolled back.
//
// Faithful. A delivered event has the id, topic, source, type and payload of the fact at its place, and the fence
// where that is known; its id: line and its data name one place; and it is in the log, where that is given. So is
// every fact that has a publisher as it was published.
//
// Acknowledged. An acknowledged publish is in the log where that is given; it has the epoch and seq that the
// answer names, in the log and at each client; two events never get one place; a repeat inside the window gets the
// first seq and is called a duplicate; what was only ever refused is never delivered. With [Options].MustReach
// each client ends with all the facts of the latest epoch that are behind its position and that it asked for.
//
// Bookmark-sound. When a client passes to a position by a bookmark, each fact up to it that the filter asks for
// was delivered before, and none up to it comes after. No bookmark goes back behind an event that was delivered,
// lies beyond the head that its frame names, or contradicts its frame's data.
//
// Asked. No event is delivered that the filter leaves out. Topics under gapless. reach raw and unnamed streams only
// by a pattern that names them.
//
// Resync. A resync has a reason of the protocol, and an id with seq 0 (or, for start=live, any) in the epoch that
// it names. Nothing but a cut follows on its connection. A position is never answered by a snapshot or a live
// start, nor an unreadable one by a stream, and no stream passes to another epoch: all these need a resync.
//
// Recorded. The history can be judged: each connection begins with its one subscribe, connected is the first
// frame, nothing follows a cut, ids are cursors. What cannot be judged is reported, never passed over.
//
// # What the checker cannot see
//
// It sees no time: that a frame came late, or never while the connection stayed open, shows only with MustReach.
// It does not ask whether a resync was needed, or its reason the right one: a server that answers everything with a
// resync keeps this law.
//
// An event that nobody was acknowledged for, that no client saw and that no list of the log has does not exist
// here. After the last position of a life nothing is due, unless MustReach says so: an event lost right before
// a resync is covered by that resync. Whatever a snapshot was cut from by its bound is not judged, nor is the
// beginning of a snapshot where no connected was recorded. Where retention trims while snapshots begin,
// [Options].Oldest must say what was never trimmed.
//
// A field that was not recorded is not compared. Payloads compare as JSON values by their canonical text, so the
// spelling of escapes and white space are not judged; of raw text, the kind of line end is not, as no SSE
// stream can carry it. An application that gets a frame and drops it is seen only if it records what it handled,
// rather than what arrived.
//
// One abandoned branch for each epoch is told apart (publishes marked Lost); a reader of it that saw none of its
// events and got no log_reset or history_changed is judged by the branch that stayed. Events in the log that no
// encoder accepts must be left out of the reference list.
package lawtest
