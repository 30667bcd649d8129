//go:build race

package protocol

// raceFactor is how much more the race detector makes of an allocation.
const raceFactor = 3
