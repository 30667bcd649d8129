package main

import (
	"bufio"
	"fmt"
	"io"
)

func newBufferedReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, inputChunk) }

// progress shows one line that the next one overwrites, on a terminal only.
func (a *app) progress(line func() string) {
	if a.eTTY && !a.flags.quiet {
		fmt.Fprintf(a.err, "\r\x1b[K%s", line())
	}
}

// clearProgress wipes the line.
func (a *app) clearProgress() {
	if a.eTTY && !a.flags.quiet {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
}
