package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	told bool // printed already, before the last line of the output
	// advertised says that brokers tell clients an address that leads nowhere.
	advertised bool
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
	// Each line is a command that can be pasted.
	lines := strings.Split(e.try, "\n")
	for i, l := range lines {
		if rest, ok := strings.CutPrefix(l, "keeplog "); ok {
			lines[i] = program() + " " + rest
		}
	}
	try := strings.Join(lines, "\n")
	if a.flags.output == "json" || a.flags.output == "jsonl" {
		line, _ := json.Marshal(struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Why     string `json:"why,omitempty"`
			Try     string `json:"try,omitempty"`
		}{e.codeName(), e.msg, e.why, try})
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
	if try != "" {
		fmt.Fprintf(a.err, "try:   %s\n", strings.ReplaceAll(try, "\n", "\n       "))
	}
}

// calledAs is the first word of the command line.
var calledAs = os.Args[0]

// program is what a person types to run this binary: its name where the shell finds it, else the path it was called by.
func program() string {
	if !strings.Contains(calledAs, "/") || filepath.Base(calledAs) != "keeplog" {
		return "keeplog"
	}
	if found, err := exec.LookPath("keeplog"); err == nil {
		a, errA := os.Stat(found)
		b, errB := os.Stat(calledAs)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return "keeplog"
		}
	}
	return calledAs
}

// again is the command line of this run with more behind it, to be pasted.
func (a *app) again(more ...string) string {
	words := []string{"keeplog"}
	for _, arg := range append(slices.Clone(a.args), more...) {
		words = append(words, shellWord(arg))
	}
	return strings.Join(words, " ")
}

// instead is the command line of this run with one argument replaced.
func (a *app) instead(old, by string) string {
	b := app{args: slices.Clone(a.args)}
	if at := slices.Index(b.args, old); at >= 0 {
		b.args[at] = by
	}
	return b.again()
}

// shellWord quotes s for a shell where it must be.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@+%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// colour says whether stderr may be coloured.
func (a *app) colour() bool {
	return a.eTTY && !a.flags.noColor && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}
