package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// formatPart is a piece of a -f format: text as it is, or one field.
type formatPart struct {
	literal []byte
	field   byte // 0: literal; else one of formatFields
}

// formatFields: key, value, headers, topic, partition, offset, time (RFC 3339), time (ms), size of the value in bytes.
const formatFields = "kvhtpodDs"

// parseFormat reads the grammar of -f: %k %v %h %t %p %o %d %D %s %% \n \t \r \0 \\, anything else is itself.
func parseFormat(s string) ([]formatPart, error) {
	var parts []formatPart
	literal := func(c byte) {
		if n := len(parts); n > 0 && parts[n-1].field == 0 {
			parts[n-1].literal = append(parts[n-1].literal, c)
			return
		}
		parts = append(parts, formatPart{literal: []byte{c}})
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '%' && c != '\\' {
			literal(c)
			continue
		}
		i++
		if i == len(s) {
			return nil, formatError(s, fmt.Sprintf("it ends in %q", c))
		}
		next := s[i]
		switch {
		case c == '%' && next == '%':
			literal('%')
		case c == '%' && slices.Contains([]byte(formatFields), next):
			parts = append(parts, formatPart{field: next})
		case c == '\\' && next == 'n':
			literal('\n')
		case c == '\\' && next == 't':
			literal('\t')
		case c == '\\' && next == 'r':
			literal('\r')
		case c == '\\' && next == '0':
			literal(0)
		case c == '\\' && next == '\\':
			literal('\\')
		default:
			return nil, formatError(s, fmt.Sprintf("%c%c means nothing", c, next))
		}
	}
	return parts, nil
}

func formatError(s, why string) *cliError {
	return &cliError{
		msg: fmt.Sprintf("format %q: %s", s, why),
		why: `fields are %k %v %h %t %p %o %d %D %s, escapes %% \n \t \r \0 \\`, exit: exitUsage,
	}
}

// plainDefault shows the default of a flag in the help as a person types it, not as Go quotes it.
func plainDefault(cmd *cobra.Command, flag string) {
	f := cmd.Flags().Lookup(flag)
	f.Usage += " (default " + f.DefValue + ")"
	f.DefValue = ""
}
