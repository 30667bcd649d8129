//go:build race

package record

// raceDetector says that the race detector is on: it allocates on its own, and empties pools at random.
const raceDetector = true
