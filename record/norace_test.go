//go:build !race

package record

const raceDetector = false

// fewer is how often something is tried.
func fewer(n, _ int) int { return n }
