package upstream

import "fmt"

// State says what a running Client is doing.
type State int

const (
	// StateConnecting: a request is under way, no stream is open yet.
	StateConnecting State = iota + 1
	// StateOpen: the server has answered with an event stream. Events arrive in this state only.
	StateOpen
	// StateWaiting: the connection has ended or failed, and the client waits before it makes another.
	StateWaiting
	// StateEnded: Run is about to return. The last state of every Run.
	StateEnded
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case StateConnecting:
		return "connecting"
	case StateOpen:
		return "open"
	case StateWaiting:
		return "waiting"
	case StateEnded:
		return "ended"
	}
	return fmt.Sprintf("state(%d)", int(s))
}
