package main

import (
	"context"
	"slices"
	"strconv"
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

// completeNames offers names that the cluster is asked for; nothing when it cannot be reached in time. For positional arguments most bounds their
// number (0: any number), and those that are there already are left out; for the value of a flag it is ofFlag.
func (a *app) completeNames(most int, names func(context.Context, *session) ([]string, error)) cobra.CompletionFunc {
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
		all, err := names(ctx, s)
		if err != nil {
			return nil, directive
		}
		if most != ofFlag {
			all = slices.DeleteFunc(all, func(n string) bool { return slices.Contains(args, n) })
		}
		return all, directive
	}
}

// ofFlag is for completeNames: the names are values of a flag.
const ofFlag = -1

func (a *app) completeTopics(most int) cobra.CompletionFunc {
	return a.completeNames(most, func(ctx context.Context, s *session) ([]string, error) {
		topics, err := s.admin.ListTopics(ctx)
		return topics.Names(), err
	})
}

func (a *app) completeGroups(most int) cobra.CompletionFunc {
	return a.completeNames(most, func(ctx context.Context, s *session) ([]string, error) {
		l, err := s.groups(ctx)
		if err != nil {
			return nil, err
		}
		return l.names(), nil
	})
}

// completeBrokers offers the numbers of brokers, those that are down too where they are told.
func (a *app) completeBrokers(most int) cobra.CompletionFunc {
	return a.completeNames(most, func(ctx context.Context, s *session) ([]string, error) {
		v := &clusterView{}
		err := s.viewCluster(ctx, v)
		var ids []string
		for _, id := range brokerIDs(v) {
			ids = append(ids, strconv.Itoa(int(id)))
		}
		return ids, err
	})
}

// completeList has a flag with values between commas go on behind the last comma.
func completeList(one cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, directive := one(cmd, args, word)
		begun := word[:strings.LastIndexByte(word, ',')+1]
		has := strings.Split(begun, ",")
		all = slices.DeleteFunc(all, func(n string) bool { return slices.Contains(has, n) })
		for i := range all {
			all[i] = begun + all[i]
		}
		return all, directive | cobra.ShellCompDirectiveNoSpace
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
