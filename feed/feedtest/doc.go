// Package feedtest holds what the engine's tests need of a log.
//
// [Run] is the conformance suite: what it asks is what feed.Log promises, and
// a backend that passes it can stand under a feed. A backend's own test is
// one call:
//
//	func TestConformance(t *testing.T) {
//		feedtest.Run(t, func(t *testing.T, cfg feedtest.Config) feed.Log {
//			log, err := memory.New(memory.Config(cfg))
//			if err != nil {
//				t.Fatal(err)
//			}
//			return log
//		})
//	}
//
// [RunState] does the same for the control state, and [RunDurable] for what
// outlives a process: stores that are closed and opened again, restores,
// backups and relocations.
//
// The names of the subtests read as the specification. What a backend cannot
// do in a test, it declares as [Lack]s; only what cannot be observed without
// the missing ability is then left out.
//
// [Log] is a log whose faults a test switches on while it runs.
package feedtest
