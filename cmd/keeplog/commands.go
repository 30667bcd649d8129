package main

import "github.com/spf13/cobra"

// commands are all commands of the program, in the order of the help page. A command file adds its constructor here.
func commands() []func(*app) *cobra.Command {
	return []func(*app) *cobra.Command{
		newServeCommand,
		newLocalCommand,
		newTopicCommand,
		newClusterCommand,
		newProduceCommand,
		newConsumeCommand,
		newGroupCommand,
		newDumpCommand,
		newCheckCommand,
		newConfigCommand,
		newCompletionCommand,
		newVersionCommand,
	}
}
