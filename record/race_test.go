//go:build race

package record

// raceDetector says that the race detector is on: it allocates on its own, and empties pools at random.
const raceDetector = true

// fewer is how often something is tried: under the race detector it takes ten times as long, and one goroutine has no races.
func fewer(_, race int) int { return race }
