//go:build !race

package log

const raceDetector = false
