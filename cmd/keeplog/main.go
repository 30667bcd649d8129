// Command keeplog is the one program of the project: it runs a broker, talks to brokers, and looks inside their files.
//
// The nouns:
//
//   - app is what one run of the program knows: its streams, whether they are terminals, the global flags, the clock.
//   - A command is one file with one function, newXCommand(app) *cobra.Command; commands.go lists them all.
//     Its RunE goes through app.run, which cancels at a signal and turns every failure into a cliError.
//   - cliError is a failure told to a person: what, why, what to try, and the exit code.
//   - result is what a command answers: one shape, printed as text, JSON, JSON lines or YAML by app.show.
//   - session is a connection to the brokers that remembers whom it reached and whom not, to explain a failure.
//
// Data goes to stdout, words to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done in part,
// 4 cannot reach or timed out, 5 damaged data found, 130 interrupted.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], standardStreams()))
}
