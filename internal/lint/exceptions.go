package lint

import (
	_ "embed" // the exceptions
	"fmt"
	"strconv"
	"strings"
)

//go:embed exceptions.tsv
var exceptionTable string

const exceptionFile = "internal/lint/exceptions.tsv"

// Exception lets one subject break a rule up to a limit.
type Exception struct {
	Rule, File, Subject string
	// Limit is the largest size, or for rules without a size the number of times.
	Limit  int
	Reason string
	line   int
}

// Exceptions are those of the file exceptions.tsv: rule, file, subject, limit and reason, separated by tabs.
func Exceptions() ([]Exception, error) { return parseExceptions(exceptionTable) }

func parseExceptions(table string) ([]Exception, error) {
	var out []Exception
	for i, l := range strings.Split(table, "\n") {
		if l == "" || l[0] == '#' {
			continue
		}
		f := strings.Split(l, "\t")
		if len(f) != 5 || len(f[4]) < 10 {
			return nil, fmt.Errorf("%s:%d: want rule, file, subject, limit and a reason, separated by tabs", exceptionFile, i+1)
		}
		n, err := strconv.Atoi(f[3])
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s:%d: the limit %q is not a number above 0", exceptionFile, i+1, f[3])
		}
		out = append(out, Exception{Rule: f[0], File: f[1], Subject: f[2], Limit: n, Reason: f[4], line: i + 1})
	}
	return out, nil
}

// apply takes out the violations that an exception covers, and adds one for each exception that allows more than is needed.
func apply(all []Violation, exceptions []Exception) []Violation {
	type subject struct{ rule, file, subject string }
	size := map[subject]int{}
	for _, v := range all {
		size[subject{v.Rule, v.File, v.Subject}] += v.Size
	}
	covered := map[subject]bool{}
	var out []Violation
	for _, e := range exceptions {
		s := subject{e.Rule, e.File, e.Subject}
		n := size[s]
		covered[s] = n <= e.Limit
		v := Violation{Rule: "exceptions", File: exceptionFile, Line: e.line, Subject: e.Subject, Size: 1}
		switch {
		case n == 0:
			v.Detail = fmt.Sprintf("%s of %s in %s is no longer needed, take it out", e.Rule, e.Subject, e.File)
			out = append(out, v)
		case n < e.Limit:
			v.Detail = fmt.Sprintf("%s of %s in %s needs only %d, lower the limit", e.Rule, e.Subject, e.File, n)
			out = append(out, v)
		}
	}
	for _, v := range all {
		if !covered[subject{v.Rule, v.File, v.Subject}] {
			out = append(out, v)
		}
	}
	return out
}
