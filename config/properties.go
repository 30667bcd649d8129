package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Property is one entry of a properties file.
type Property struct {
	Key, Value string
	// Line is the number of the line the entry begins on, from 1.
	Line int
}

// ParseProperties reads a file in the format of java.util.Properties: one entry a line; key and value separated by '=', ':' or blanks;
// comments on their own lines after '#' or '!'; a backslash at the end of a line continues it; \t \n \r \f and \uXXXX are escapes and a
// backslash before any other character is dropped. Text is UTF-8, or Latin-1 where it is not valid UTF-8. Entries come in the order of
// the file, repeated keys included. A malformed \u escape is an error that names the line.
func ParseProperties(content []byte) ([]Property, error) {
	text := string(content)
	if !utf8.ValidString(text) {
		text = latin1(content)
	}
	var out []Property
	r := lineReader{rest: text}
	for {
		line, number, ok := r.next()
		if !ok {
			return out, nil
		}
		k, v, err := splitEntry(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		out = append(out, Property{Key: k, Value: v, Line: number})
	}
}

func latin1(b []byte) string {
	rs := make([]rune, len(b))
	for i, c := range b {
		rs[i] = rune(c)
	}
	return string(rs)
}

// lineReader yields logical lines: comments and blank lines left out, continued lines joined.
type lineReader struct {
	rest string
	line int
}

const blanks = " \t\f"

func (r *lineReader) natural() (string, bool) {
	if r.rest == "" {
		return "", false
	}
	r.line++
	i := strings.IndexAny(r.rest, "\r\n")
	if i < 0 {
		s := r.rest
		r.rest = ""
		return s, true
	}
	s, after := r.rest[:i], r.rest[i+1:]
	if r.rest[i] == '\r' && strings.HasPrefix(after, "\n") {
		after = after[1:]
	}
	r.rest = after
	return s, true
}

func (r *lineReader) next() (logical string, number int, ok bool) {
	for {
		s, ok := r.natural()
		if !ok {
			return "", 0, false
		}
		s = strings.TrimLeft(s, blanks)
		if s == "" || s[0] == '#' || s[0] == '!' {
			continue
		}
		number = r.line
		var b strings.Builder
		for continues(s) {
			b.WriteString(s[:len(s)-1])
			if s, ok = r.natural(); !ok {
				s = ""
				break
			}
			s = strings.TrimLeft(s, blanks)
		}
		b.WriteString(s)
		if b.Len() == 0 {
			continue
		}
		return b.String(), number, true
	}
}

// continues is true when the line ends in an odd number of backslashes.
func continues(s string) bool {
	n := len(s) - len(strings.TrimRight(s, `\`))
	return n%2 == 1
}

// splitEntry splits a logical line into key and value and resolves the escapes of both.
func splitEntry(line string) (key, value string, err error) {
	i := 0
	for i < len(line) && !strings.ContainsRune(blanks+"=:", rune(line[i])) {
		if line[i] == '\\' {
			i++
		}
		i++
	}
	i = min(i, len(line))
	rawKey, rest := line[:i], strings.TrimLeft(line[i:], blanks)
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], blanks)
	}
	if key, err = unescape(rawKey); err != nil {
		return "", "", err
	}
	value, err = unescape(rest)
	return key, value, err
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			break
		}
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			n, r, err := unicodeEscapes(s[i-1:])
			if err != nil {
				return "", err
			}
			b.WriteString(r)
			i += n - 2
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

// unicodeEscapes reads the run of \uXXXX at the start of s, so that surrogate pairs come together.
func unicodeEscapes(s string) (n int, text string, err error) {
	var units []uint16
	for strings.HasPrefix(s[n:], `\u`) {
		if len(s) < n+6 {
			return 0, "", fmt.Errorf(`%q is not \u and four hexadecimal digits`, s[n:])
		}
		u, err := strconv.ParseUint(s[n+2:n+6], 16, 16)
		if err != nil {
			return 0, "", fmt.Errorf(`%q is not \u and four hexadecimal digits`, s[n:n+6])
		}
		units = append(units, uint16(u))
		n += 6
	}
	return n, string(utf16.Decode(units)), nil
}
