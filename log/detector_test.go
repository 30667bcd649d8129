//go:build race

package log

// raceDetector says that the race detector is on. What one goroutine does alone is then done less often: it takes ten times as
// long, and there is nothing to find.
const raceDetector = true
