package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

var outputFormats = []string{"text", "wide", "json", "jsonl", "yaml"}

// result is the answer of a command in every format.
type result struct {
	body  any         // the whole as one JSON object; its first field is "version"
	items []any       // the lines of -o jsonl; nil: the body in one line
	text  func(*text) // for people
}

// show prints r on stdout in the format that was asked for.
func (a *app) show(r result) error {
	w := bufio.NewWriter(a.out)
	var err error
	switch a.flags.output {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err = enc.Encode(r.body)
	case "jsonl":
		items := r.items
		if items == nil {
			items = []any{r.body}
		}
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for _, item := range items {
			if err = enc.Encode(item); err != nil {
				break
			}
		}
	case "yaml":
		err = writeYAML(w, r.body)
	default:
		t := &text{w: w, wide: a.flags.output == "wide", headers: !a.flags.noHeaders}
		r.text(t)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// text prints for people.
type text struct {
	w             *bufio.Writer
	wide, headers bool
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(t.w, format+"\n", args...) }

// table prints rows under head, columns two spaces apart, without borders.
func (t *text) table(head []string, rows [][]string) {
	all := rows
	if t.headers {
		all = append([][]string{head}, rows...)
	}
	widths := make([]int, len(head))
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var line []byte
	for _, row := range all {
		line = line[:0]
		for i, cell := range row {
			line = append(line, cell...)
			for range widths[i] - utf8.RuneCountInString(cell) + 2 {
				line = append(line, ' ')
			}
		}
		t.w.Write(append(bytes.TrimRight(line, " "), '\n'))
	}
}

// size is a number of bytes for people.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 && n > -1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 || f <= -1024 {
		f /= 1024
		u++
	}
	s := strconv.FormatFloat(f, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0") + " " + units[u:u+1] + "iB"
}

// orNull prints null without quotes, an empty text as "".
func orNull(s *string) string {
	switch {
	case s == nil:
		return "null"
	case *s == "":
		return `""`
	}
	return *s
}
