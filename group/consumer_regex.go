package group

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"time"
)

// Bounds of a regular expression, so that nobody's pattern keeps the coordinator busy: its length, the size of the program
// that it compiles to, how many of them a group may have, and how many bytes of topic names one may stand for.
const (
	maxPatternBytes   = 1024
	maxPatternProgram = 256
	maxPatterns       = 64
	maxPatternTopics  = 256 << 10
)

// resolveGap is the least time between two look-ups of a group's regular expressions.
const resolveGap = 10 * time.Second

// resolveSlice bounds how much of a look-up is done in one step: instructions × bytes of names, some milliseconds.
const resolveSlice = 1 << 19

// compilePattern compiles a pattern in RE2's syntax that must match the whole of a topic's name.
func compilePattern(pattern string) (*regexp.Regexp, int, error) {
	if len(pattern) > maxPatternBytes {
		return nil, 0, fmt.Errorf("%w: longer than %d bytes", ErrInvalidRegex, maxPatternBytes)
	}
	whole := `\A(?:` + pattern + `)\z`
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err == nil {
		parsed, err = syntax.Parse(whole, syntax.Perl)
	}
	if err != nil {
		var bad *syntax.Error
		if errors.As(err, &bad) {
			return nil, 0, fmt.Errorf("%w: %s", ErrInvalidRegex, bad.Code)
		}
		return nil, 0, fmt.Errorf("%w: %w", ErrInvalidRegex, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrInvalidRegex, err)
	}
	if len(program.Inst) > maxPatternProgram {
		return nil, 0, fmt.Errorf("%w: too complex", ErrInvalidRegex)
	}
	re, err := regexp.Compile(whole)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrInvalidRegex, err)
	}
	return re, len(program.Inst), nil
}

// lookup is a look-up of regular expressions under way. It goes on slice by slice, so that a group with many does not keep
// the others of its shard waiting.
type lookup struct {
	patterns []string
	names    []string
	index    uint64
	may      func(topic string) bool
	// at and name say where it goes on: the pattern and the topic.
	at, name int
	compiled *regexp.Regexp
	cost     int
	found    map[string][]string
}

// begin starts to look patterns up among all topics of now.
func beginLookup(patterns []string, topics Topics, may func(string) bool) *lookup {
	return &lookup{
		patterns: patterns, names: slices.Sorted(topics.Names()), index: topics.Index(), may: may,
		found: make(map[string][]string, len(patterns)),
	}
}

// run does one slice, and says whether all is done.
func (l *lookup) run() (done bool) {
	for budget := resolveSlice; l.at < len(l.patterns); l.at, l.name, l.compiled = l.at+1, 0, nil {
		pattern := l.patterns[l.at]
		if l.compiled == nil {
			var err error
			if l.compiled, l.cost, err = compilePattern(pattern); err != nil {
				l.found[pattern] = nil
				continue
			}
		}
		size := 0
		for _, name := range l.found[pattern] {
			size += len(name)
		}
		for ; l.name < len(l.names); l.name++ {
			if budget <= 0 {
				return false
			}
			name := l.names[l.name]
			budget -= l.cost * len(name)
			if size+len(name) <= maxPatternTopics && l.compiled.MatchString(name) && (l.may == nil || l.may(name)) {
				l.found[pattern] = append(l.found[pattern], name)
				size += len(name)
			}
		}
	}
	return true
}
