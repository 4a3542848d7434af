//go:build race

package server_test

// raceEnabled: the race detector makes connections ten times dearer.
const raceEnabled = true
