package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitPart        = 3 // done in part, or not healthy
	exitUnreachable = 4 // cannot reach, or timed out
	exitDamaged     = 5
	exitInterrupted = 130
)

// cliError is a failure as it is told to a person.
type cliError struct {
	msg  string // what failed, on what, with the Kafka error name
	why  string // optional
	try  string // optional: a command that can be pasted
	code string // a stable name for programs; empty: derived from exit
	exit int
}

func (e *cliError) Error() string { return e.msg }

// usagef is an error about how the command was called.
func usagef(format string, args ...any) *cliError {
	return &cliError{msg: fmt.Sprintf(format, args...), exit: exitUsage}
}

// failf is a plain failure.
func failf(format string, args ...any) *cliError {
	return &cliError{msg: fmt.Sprintf(format, args...), exit: exitFailed}
}

// failure returns err as a cliError, with exit code 1 if it was none.
func failure(err error) *cliError {
	var ce *cliError
	if errors.As(err, &ce) {
		return ce
	}
	return &cliError{msg: err.Error(), exit: exitFailed}
}

// asCLIError is for what the command parser returns: what is not ours is wrong usage.
func asCLIError(err error) *cliError {
	var ce *cliError
	if errors.As(err, &ce) {
		return ce
	}
	msg, _, _ := strings.Cut(err.Error(), "\n")
	return &cliError{msg: msg, try: "keeplog --help", exit: exitUsage}
}

func (e *cliError) codeName() string {
	if e.code != "" {
		return e.code
	}
	switch e.exit {
	case exitUsage:
		return "USAGE"
	case exitPart:
		return "PARTIAL"
	case exitUnreachable:
		return "UNREACHABLE"
	case exitDamaged:
		return "DAMAGED"
	case exitInterrupted:
		return "INTERRUPTED"
	}
	return "FAILED"
}

// printError writes e to stderr: three short lines, or one JSON object with -o json and jsonl.
func (a *app) printError(e *cliError) {
	if a.flags.output == "json" || a.flags.output == "jsonl" {
		line, _ := json.Marshal(struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Why     string `json:"why,omitempty"`
			Try     string `json:"try,omitempty"`
		}{e.codeName(), e.msg, e.why, e.try})
		fmt.Fprintf(a.err, "%s\n", line)
		return
	}
	head, reset := "error:", ""
	if a.colour() {
		head, reset = "\x1b[1;31merror:", "\x1b[0m"
	}
	fmt.Fprintf(a.err, "%s%s %s\n", head, reset, e.msg)
	if e.why != "" {
		fmt.Fprintf(a.err, "why:   %s\n", e.why)
	}
	if e.try != "" {
		fmt.Fprintf(a.err, "try:   %s\n", e.try)
	}
}

// colour says whether stderr may be coloured.
func (a *app) colour() bool {
	return a.eTTY && !a.flags.noColor && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}
