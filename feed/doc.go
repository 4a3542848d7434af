// Package feed delivers one ordered log of events to any number of
// subscribers, each with its own bounded queue.
//
// # What it guarantees
//
// A subscriber receives every event that it asked for, in order, exactly
// once, or its last frame says resync_required. In particular:
//
//   - Order is the log's: seq rises inside an epoch, and nothing else orders.
//   - The handoff from replay to live neither drops nor repeats an event: a
//     subscriber joins the live set in the same critical section in which the
//     rest of what it lacks moves into its queue.
//   - A full queue costs only its own subscriber: it drains what was accepted,
//     reads the log from the first event that was not, and joins again. Only
//     where the log no longer holds that event does it end, with "lagged".
//   - Every read is anchored: it carries the epoch, the bounds, and the fence
//     at the position that was read after. A log that was rolled back, or
//     that has grown again since, ends the streams with "log_reset".
//   - A bookmark never passes an event that matches and was not written. What
//     [Subscriber.Next] returned counts as written when Next is called again.
//   - An event is encoded at most once in each shape while the ring holds it,
//     and not at all while nobody reads.
//   - Publishing waits for no subscriber. It waits for the pump, for a second
//     at the most, where the pump is behind by half of what the log keeps.
//
// # What it does not guarantee
//
//   - That an event is delivered after the log has lost it: durability is the
//     store's.
//   - That a client handles what was written to its connection: the cursor in
//     each frame lets it come back to where it was.
//   - A position for start=live on a log that never held an event: its cursor
//     has seq 0, which asks for the start again.
//
// # How it fits together
//
// One pump reads the [Log], encodes each event into immutable frames, keeps
// the recent ones in a ring, and offers them, never blocking, to the queues
// of the live subscribers. A [Subscriber] is replaying (it reads the ring or
// the log from its cursor), live, lagging (its queue was full), or closed.
// The package knows no HTTP and no database.
package feed
