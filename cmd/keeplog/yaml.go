package main

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strings"
)

// plainYAML matches texts that need no quotes in YAML: no sign of its own, no number, no word that YAML reads.
var plainYAML = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// writeYAML writes v, which JSON can hold, as YAML with the fields in the order of the JSON.
func writeYAML(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var y yamlWriter
	if err := y.value(dec, 0, false); err != nil {
		return err
	}
	_, err = w.Write(y.out.Bytes())
	return err
}

type yamlWriter struct{ out bytes.Buffer }

// value writes the next value of dec. after says that a key or a dash stands before it on the line; in a list item the
// first field of an object goes on that line.
func (y *yamlWriter) value(dec *json.Decoder, depth int, after bool) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	delim, nested := tok.(json.Delim)
	if !nested {
		if after {
			y.out.WriteByte(' ')
		}
		y.scalar(tok)
		y.out.WriteByte('\n')
		return nil
	}
	if !dec.More() {
		if after {
			y.out.WriteByte(' ')
		}
		y.out.WriteString(map[json.Delim]string{'{': "{}\n", '[': "[]\n"}[delim])
		_, err = dec.Token()
		return err
	}
	inItem := after && bytes.HasSuffix(y.out.Bytes(), []byte("-"))
	if after && !inItem {
		y.out.WriteByte('\n')
	}
	for first := true; dec.More(); first = false {
		switch {
		case first && inItem:
			y.out.WriteByte(' ')
		default:
			y.out.WriteString(strings.Repeat("  ", depth))
		}
		if delim == '[' {
			y.out.WriteByte('-')
		} else {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			y.scalar(key)
			y.out.WriteByte(':')
		}
		if err := y.value(dec, depth+1, true); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

func (y *yamlWriter) scalar(tok json.Token) {
	s, isText := tok.(string)
	if isText && plainYAML.MatchString(s) {
		switch strings.ToLower(s) {
		case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		default:
			y.out.WriteString(s)
			return
		}
	}
	raw, _ := json.Marshal(tok)
	y.out.Write(raw)
}
