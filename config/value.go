package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// ErrValue is wrapped by every error about a value that its key does not allow.
var ErrValue = errors.New("invalid value")

// MaxValueLength is the longest value of a setting in UTF-16 units, as in Kafka (its records hold the length in a signed short).
const MaxValueLength = math.MaxInt16

// Valid bounds the values of a key. The zero value allows all.
type Valid struct {
	low, high       int64
	hasLow, hasHigh bool
	// also is one more number that is allowed outside the range.
	also    int64
	hasAlso bool
	// one lists the allowed words.
	one []string
	// check looks at the value in its canonical form.
	check func(string) error
	words string
	// blankItems lets a list hold empty items.
	blankItems bool
}

func atLeast(n int64) Valid    { return Valid{low: n, hasLow: true} }
func between(a, b int64) Valid { return Valid{low: a, hasLow: true, high: b, hasHigh: true} }
func oneOf(words ...string) Valid {
	return Valid{one: words}
}

func rangeOr(a, b, also int64) Valid {
	v := between(a, b)
	v.also, v.hasAlso = also, true
	return v
}

func checked(words string, f func(string) error) Valid { return Valid{check: f, words: words} }

// String says in words what is allowed; empty when everything is.
func (v Valid) String() string {
	switch {
	case v.words != "":
		return v.words
	case len(v.one) > 0:
		return "one of " + strings.Join(v.one, ", ")
	case v.hasAlso:
		return fmt.Sprintf("%d, or %d to %d", v.also, v.low, v.high)
	case v.hasLow && v.hasHigh:
		return fmt.Sprintf("%d to %d", v.low, v.high)
	case v.hasLow:
		return fmt.Sprintf("at least %d", v.low)
	}
	return ""
}

// Check tests a value of the key and returns it in canonical form: blanks trimmed, numbers in plain decimal, list items joined with a
// comma, booleans in lower case. The error wraps ErrValue.
func (k *Key) Check(value string) (string, error) {
	v, err := k.check(value)
	if err != nil {
		return "", fmt.Errorf("%w for %s: %w", ErrValue, k.Name, err)
	}
	return v, nil
}

func (k *Key) check(value string) (string, error) {
	if n := len(utf16.Encode([]rune(value))); n > MaxValueLength {
		return "", fmt.Errorf("%d characters, the limit is %d", n, MaxValueLength)
	}
	v := trim(value)
	switch k.Type {
	case Boolean:
		return checkBool(v)
	case Int:
		return k.checkInteger(v, math.MinInt32, math.MaxInt32)
	case Short:
		return k.checkInteger(v, math.MinInt16, math.MaxInt16)
	case Long:
		return k.checkInteger(v, math.MinInt64, math.MaxInt64)
	case Double:
		return k.checkDouble(v)
	case List:
		return k.checkList(v)
	}
	if err := k.Valid.word(v); err != nil {
		return "", err
	}
	return v, nil
}

func checkBool(v string) (string, error) {
	switch {
	case strings.EqualFold(v, "true"):
		return "true", nil
	case strings.EqualFold(v, "false"):
		return "false", nil
	}
	return "", fmt.Errorf("%q is neither true nor false", v)
}

func (k *Key) checkInteger(v string, low, high int64) (string, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if errors.Is(err, strconv.ErrRange) || (err == nil && (n < low || n > high)) {
		return "", fmt.Errorf("%s is out of the range of type %s", v, k.Type)
	}
	if err != nil {
		return "", fmt.Errorf("%q is not a whole number", v)
	}
	r := k.Valid
	if r.hasAlso && n == r.also {
		return strconv.FormatInt(n, 10), nil
	}
	if r.hasLow && n < r.low || r.hasHigh && n > r.high {
		return "", fmt.Errorf("%d is out of range: %s", n, r)
	}
	v = strconv.FormatInt(n, 10)
	if r.check != nil {
		return v, r.check(v)
	}
	return v, nil
}

func (k *Key) checkDouble(v string) (string, error) {
	number := v
	if n := len(v); n > 1 && strings.ContainsRune("fFdD", rune(v[n-1])) && !strings.ContainsAny(v, "xX") {
		number = v[:n-1] // Java lets a number name its type
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(f) || strings.Contains(v, "_") {
		return "", fmt.Errorf("%q is not a number", v)
	}
	r := k.Valid
	if r.hasLow && f < float64(r.low) || r.hasHigh && f > float64(r.high) {
		return "", fmt.Errorf("%s is out of range: %s", v, r)
	}
	return formatDouble(f), nil
}

// checkList takes repeated items once, as Kafka does.
func (k *Key) checkList(v string) (string, error) {
	var items []string
	for _, it := range splitList(v) {
		if it == "" && !k.Valid.blankItems {
			return "", errors.New("a list item is empty")
		}
		if len(k.Valid.one) > 0 && !slices.Contains(k.Valid.one, it) {
			return "", fmt.Errorf("%q is not one of %s", it, strings.Join(k.Valid.one, ", "))
		}
		items = append(items, it)
	}
	if k.Valid.check != nil {
		if err := k.Valid.check(strings.Join(items, ",")); err != nil {
			return "", err
		}
	}
	var once []string
	for _, it := range items {
		if !slices.Contains(once, it) {
			once = append(once, it)
		}
	}
	return strings.Join(once, ","), nil
}

// word tests a value that is text.
func (v Valid) word(s string) error {
	if len(v.one) > 0 && !slices.Contains(v.one, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(v.one, ", "))
	}
	if v.check != nil {
		return v.check(s)
	}
	return nil
}

// trim removes blanks and control characters from both ends, as Java's String.trim does.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
}

// splitList splits a list value at commas; an empty text is an empty list.
func splitList(v string) []string {
	v = trim(v)
	if v == "" {
		return nil
	}
	items := strings.Split(v, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// formatDouble writes a number as Kafka shows it: 0.5, 1.0, 1.7976931348623157E308.
func formatDouble(f float64) string {
	if a := math.Abs(f); a == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	if math.IsInf(f, 0) {
		return strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, 64), "+") + "inity"
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}
