package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keeplog/keeplog/config"
)

// completionTimeout is how long a shell may wait for names from the cluster.
const completionTimeout = 800 * time.Millisecond

func newCompletionCommand(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print the completion script of a shell",
		Example:   "  source <(keeplog completion bash)",
		ValidArgs: shells,
		Args:      wantsArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
			e := usagef("unknown shell %q", args[0])
			e.try = "keeplog completion bash"
			return e
		},
	}
}

// completeTopics offers the topics of the cluster; nothing when it cannot be reached in time. most bounds the number of
// arguments (0: any number).
func (a *app) completeTopics(most int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		if most > 0 && len(args) >= most {
			return nil, directive
		}
		a.flags.timeout = completionTimeout
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		s, err := a.connect(ctx)
		if err != nil {
			return nil, directive
		}
		defer s.close()
		topics, err := s.admin.ListTopics(ctx)
		if err != nil {
			return nil, directive
		}
		names := slices.DeleteFunc(topics.Names(), func(n string) bool { return slices.Contains(args, n) })
		return names, directive
	}
}

// completeKeys has the values of flags begin with the properties of a scope, followed by after.
func completeKeys(cmd *cobra.Command, scope config.Scope, after string, flags ...string) {
	complete := func(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var names []string
		for _, k := range config.Keys(scope) {
			if strings.HasPrefix(k.Name, word) {
				names = append(names, k.Name+after)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	for _, f := range flags {
		_ = cmd.RegisterFlagCompletionFunc(f, complete)
	}
}
