package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// badArgument is how the flag parser tells of a value that it cannot read.
var badArgument = regexp.MustCompile(`^invalid argument (".*") for "(?:-., )?(--[a-z-]+)" flag: `)

// flagError tells which flag was wrong, and what it takes.
func flagError(cmd *cobra.Command, err error) error {
	e := &cliError{msg: err.Error(), try: cmd.CommandPath() + " --help", exit: exitUsage}
	m := badArgument.FindStringSubmatch(e.msg)
	if m == nil {
		return e
	}
	f := cmd.Flags().Lookup(strings.TrimPrefix(m[2], "--"))
	if f == nil {
		return e
	}
	kinds := map[string][2]string{
		"duration": {"a duration", "10s"}, "int": {"a whole number", "1"}, "int32": {"a whole number", "1"}, "int64": {"a whole number", "1"},
		"int32Slice": {"a list of whole numbers", "0,2"}, "float64": {"a number", "1000"}, "bool": {"true or false", ""},
	}
	if k, ok := kinds[f.Value.Type()]; ok {
		e.msg = fmt.Sprintf("%s %s: not %s", m[2], strings.Trim(m[1], `"`), k[0])
		if k[1] != "" {
			e.try = m[2] + " " + k[1]
		}
	}
	return e
}
