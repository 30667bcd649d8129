package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker (-X main.version=…); a build without it tells the module's version.
var version string

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func newVersionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: wantsArgs(0, 0),
		RunE: a.run(func(context.Context, []string) error {
			body := struct {
				Version  int    `json:"version"`
				Keeplog  string `json:"keeplog"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{1, versionText(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.show(result{body: body, text: func(t *text) {
				t.line("keeplog %s (%s, %s)", body.Keeplog, body.Go, body.Platform)
			}})
		}),
	}
	a.outputFlags(cmd)
	return cmd
}
