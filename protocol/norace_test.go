//go:build !race

package protocol

const raceFactor = 1
