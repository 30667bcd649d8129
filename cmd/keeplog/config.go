package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keeplog/keeplog/config"
)

// brokerFlags are the flags that a broker's configuration is made from.
type brokerFlags struct {
	file string
	set  []string
}

func (f *brokerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "config", "", "a server.properties `FILE`")
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "a property, `KEY=VALUE` (repeatable), above file and environment")
	completeKeys(cmd, config.ScopeBroker, "=", "set")
}

// load reads file, environment, --set and named flags. Warnings go to stderr; every error that was found is told.
func (a *app) load(f brokerFlags, named []config.Flag) (*config.Broker, error) {
	in := config.Input{File: f.file, Env: os.Environ(), Set: f.set, Flags: named}
	if f.file != "" {
		content, err := os.ReadFile(f.file)
		if err != nil {
			return nil, &cliError{msg: fmt.Sprintf("%s: cannot read the configuration (%s)", f.file, lastPart(err)), exit: exitUsage}
		}
		in.Content = content
	}
	b, warnings, err := config.Load(in)
	for _, w := range warnings {
		a.words("warning: %s", w)
	}
	if err == nil {
		return b, nil
	}
	var all *config.Error
	if !errors.As(err, &all) || len(all.Problems) == 0 {
		return nil, &cliError{msg: err.Error(), exit: exitUsage}
	}
	for _, p := range all.Problems[:len(all.Problems)-1] {
		a.printError(problemError(p))
	}
	return nil, problemError(all.Problems[len(all.Problems)-1])
}

func problemError(p config.Problem) *cliError {
	return &cliError{msg: p.Message(), why: p.Why, try: p.Try, code: "INVALID_CONFIG", exit: exitUsage}
}

// words prints for people on stderr, unless they asked for quiet.
func (a *app) words(format string, args ...any) {
	if !a.flags.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

func newConfigCommand(a *app) *cobra.Command {
	return a.group("config", "Check, explain and list the server's properties",
		newConfigCheckCommand(a), newConfigExplainCommand(a), newConfigListCommand(a))
}

func newConfigCheckCommand(a *app) *cobra.Command {
	var f brokerFlags
	cmd := &cobra.Command{
		Use: "check [FILE]", Short: "Check a server.properties file, with environment and --set as serve would take them",
		Args: wantsArgs(0, 1),
	}
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		if len(args) == 1 {
			f.file = args[0]
		}
		b, err := a.load(f, nil)
		if err != nil {
			return err
		}
		body := struct {
			Version int             `json:"version"`
			OK      bool            `json:"ok"`
			Set     []propertyValue `json:"set"`
		}{1, true, setValues(b)}
		return a.show(result{body: body, items: anys(body.Set), text: func(t *text) {
			checkText(t, body.Set)
		}})
	})
	f.add(cmd)
	a.outputFlags(cmd)
	return cmd
}

func checkText(t *text, set []propertyValue) {
	head := []string{"PROPERTY", "VALUE", "FROM", "STATUS"}
	if t.wide {
		head = append(head, "REASON")
	}
	rows := make([][]string, len(set))
	for i, v := range set {
		rows[i] = []string{v.Key, orNull(v.Value), v.Origin, v.Status}
		if t.wide {
			rows[i] = append(rows[i], v.Reason)
		}
	}
	if len(rows) > 0 {
		t.table(head, rows)
	}
	t.line("ok")
}

// propertyValue is a property that something other than the default gives its value.
type propertyValue struct {
	Key    string  `json:"key"`
	Value  *string `json:"value"`
	Origin string  `json:"origin"`
	Status string  `json:"status"`
	Reason string  `json:"reason,omitempty"` // of a status other than used
}

func setValues(b *config.Broker) []propertyValue {
	out := []propertyValue{}
	for _, v := range b.Values() {
		if v.Source == config.SourceDefault {
			continue
		}
		p := propertyValue{Key: v.Key.Name, Origin: v.Origin, Status: v.Key.Status.String()}
		if v.Key.Status != config.Used {
			p.Reason = v.Key.Reason
		}
		switch {
		case v.Key.Sensitive():
			hidden := "[hidden]"
			p.Value = &hidden
		case !v.Null:
			p.Value = &v.Text
		}
		out = append(out, p)
	}
	return out
}

func anys[T any](items []T) []any {
	out := make([]any, len(items))
	for i := range items {
		out[i] = items[i]
	}
	return out
}

// keyInfo is what is known of a key.
type keyInfo struct {
	Key          string  `json:"key"`
	Scope        string  `json:"scope"`
	Type         string  `json:"type"`
	Unit         string  `json:"unit,omitempty"`
	Default      *string `json:"default"`
	KafkaDefault string  `json:"kafka_default,omitempty"`
	Valid        string  `json:"valid,omitempty"`
	Restart      bool    `json:"restart"`
	Status       string  `json:"status"`
	Reason       string  `json:"reason,omitempty"`
	Synonym      string  `json:"broker_key,omitempty"`
	Doc          string  `json:"doc"`
}

func describeKey(k *config.Key) keyInfo {
	return keyInfo{
		Key: k.Name, Scope: k.Scope.String(), Type: k.Type.String(), Unit: k.Unit(), Default: k.DefaultValue(), KafkaDefault: k.Kafka,
		Valid: k.Valid.String(), Restart: k.Scope == config.ScopeBroker && !k.Live, Status: k.Status.String(), Reason: k.Reason,
		Synonym: k.Synonym, Doc: k.Doc,
	}
}

var configScopes = []config.Scope{config.ScopeBroker, config.ScopeTopic, config.ScopeGroup, config.ScopeClientMetrics}

func newConfigExplainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain KEY...", Short: "Tell what a property means, its default, and how Kafka differs", Args: wantsArgs(1, -1),
		ValidArgsFunction: func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return keyNames(prefix), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		var infos []keyInfo
		for _, name := range args {
			found := keysNamed(name)
			if len(found) == 0 {
				return unknownKey(name)
			}
			infos = append(infos, found...)
		}
		body := struct {
			Version int       `json:"version"`
			Keys    []keyInfo `json:"keys"`
		}{1, infos}
		return a.show(result{body: body, items: anys(infos), text: func(t *text) {
			for i, k := range infos {
				if i > 0 {
					t.line("")
				}
				explainText(t, k)
			}
		}})
	})
	a.outputFlags(cmd)
	return cmd
}

func keysNamed(name string) []keyInfo {
	var out []keyInfo
	for _, scope := range configScopes {
		if k := config.Lookup(scope, name); k != nil {
			out = append(out, describeKey(k))
		}
	}
	return out
}

func keyNames(prefix string) []string {
	var out []string
	for _, scope := range configScopes {
		for _, k := range config.Keys(scope) {
			if strings.HasPrefix(k.Name, prefix) {
				out = append(out, k.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func unknownKey(name string) *cliError {
	e := &cliError{msg: fmt.Sprintf("unknown property %s", name), try: "keeplog config list", code: "INVALID_CONFIG", exit: exitUsage}
	for _, scope := range configScopes {
		if near := config.Suggest(scope, name); near != "" {
			e.try = "keeplog config explain " + near
			break
		}
	}
	return e
}

func explainText(t *text, k keyInfo) {
	t.line("%s (%s)", k.Key, k.Scope)
	t.line("  %s", k.Doc)
	typ := k.Type
	if k.Unit != "" {
		typ += ", " + k.Unit
	}
	t.line("  type      %s", typ)
	if k.Valid != "" {
		t.line("  values    %s", k.Valid)
	}
	t.line("  default   %s", orNull(k.Default))
	if k.KafkaDefault != "" {
		t.line("  in Kafka  %s", k.KafkaDefault)
	}
	if k.Synonym != "" {
		t.line("  broker    %s gives the default of all topics", k.Synonym)
	}
	if k.Scope == config.ScopeBroker.String() {
		restart := "no, it can be altered while the server runs"
		if k.Restart {
			restart = "yes"
		}
		t.line("  restart   %s", restart)
	}
	status := k.Status
	if k.Reason != "" {
		status += ": " + k.Reason
	}
	t.line("  status    %s", status)
}

func newConfigListCommand(a *app) *cobra.Command {
	var scope, status string
	cmd := &cobra.Command{
		Use: "list", Short: "List the known properties: used, accepted without effect (and why), refused (and why)", Args: wantsArgs(0, 0),
	}
	cmd.RunE = a.run(func(context.Context, []string) error {
		if err := oneOfThese("--scope", scope, "broker", "topic", "group", "client-metrics"); err != nil {
			return err
		}
		if err := oneOfThese("--status", status, "used", "no effect", "refused"); err != nil {
			return err
		}
		infos := []keyInfo{}
		for _, s := range configScopes {
			if scope != "" && s.String() != scope {
				continue
			}
			for _, k := range config.Keys(s) {
				if info := describeKey(k); status == "" || info.Status == status {
					infos = append(infos, info)
				}
			}
		}
		body := struct {
			Version int       `json:"version"`
			Keys    []keyInfo `json:"keys"`
		}{1, infos}
		return a.show(result{body: body, items: anys(infos), text: func(t *text) { listText(t, infos) }})
	})
	cmd.Flags().StringVar(&scope, "scope", "", "only `SCOPE`: broker, topic, group or client-metrics")
	cmd.Flags().StringVar(&status, "status", "", "only `STATUS`: used, no effect or refused")
	a.outputFlags(cmd)
	return cmd
}

// oneOfThese refuses a value of flag that is none of words; an empty one was not given.
func oneOfThese(flag, value string, words ...string) error {
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	e := usagef("%s %q: %s", flag, value, strings.Join(words, ", "))
	e.try = flag + " " + shellWord(words[0])
	if near := nearest(value, words); near != "" {
		e.try = flag + " " + shellWord(near)
	}
	return e
}

func listText(t *text, infos []keyInfo) {
	rows := make([][]string, len(infos))
	for i, k := range infos {
		rows[i] = []string{k.Key, k.Scope, k.Status, orNull(k.Default)}
		if t.wide {
			rows[i] = append(rows[i], k.Reason)
		}
	}
	head := []string{"PROPERTY", "SCOPE", "STATUS", "DEFAULT"}
	if t.wide {
		head = append(head, "REASON")
	}
	t.table(head, rows)
}
