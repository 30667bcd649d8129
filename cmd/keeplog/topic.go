package main

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newTopicCommand(a *app) *cobra.Command {
	cmd := a.group("topic", "List, create, describe, change and delete topics",
		newTopicListCommand(a), newTopicCreateCommand(a), newTopicDescribeCommand(a), newTopicAlterCommand(a),
		newTopicDeleteCommand(a), newTopicGrowCommand(a), newTopicTrimCommand(a))
	a.clientFlags(cmd)
	return cmd
}

// topicID is a topic id as Kafka prints it.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

type topicRow struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	Internal   bool   `json:"internal"`
}

func newTopicListCommand(a *app) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the topics", Args: wantsArgs(0, 0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			return a.ask(ctx, func(ctx context.Context, s *session) error {
				all, err := s.admin.ListTopicsWithInternal(ctx)
				if err != nil {
					return err
				}
				rows := []topicRow{}
				for _, d := range all.Sorted() {
					if d.IsInternal && !internal {
						continue
					}
					rows = append(rows, topicRow{d.Topic, topicID(d.ID), len(d.Partitions), d.Partitions.NumReplicas(), d.IsInternal})
				}
				return a.showTopicList(rows)
			})
		}),
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	return cmd
}

func (a *app) showTopicList(rows []topicRow) error {
	items := make([]any, len(rows))
	cells := make([][]string, len(rows))
	wide := a.flags.output == "wide"
	for i, r := range rows {
		items[i] = r
		cells[i] = []string{r.Topic, strconv.Itoa(r.Partitions), strconv.Itoa(r.Replicas)}
		if wide {
			cells[i] = append(cells[i], r.ID, yesNo(r.Internal))
		}
	}
	head := []string{"TOPIC", "PARTITIONS", "REPLICAS"}
	if wide {
		head = append(head, "ID", "INTERNAL")
	}
	body := struct {
		Version int        `json:"version"`
		Topics  []topicRow `json:"topics"`
	}{1, rows}
	return a.show(result{body: body, items: items, text: func(t *text) {
		if len(rows) > 0 {
			t.table(head, cells)
		}
	}})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// count is "1 partition", "2 partitions".
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// keyValues splits every "k=v" of flag.
func keyValues(flag string, pairs []string) ([][2]string, error) {
	var out [][2]string
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("%s %s: not KEY=VALUE", flag, p)
		}
		out = append(out, [2]string{k, v})
	}
	return out, nil
}

// outcome is what became of one topic of a command that changes several.
type outcome struct {
	Topic   string `json:"topic"`
	Done    string `json:"done,omitempty"` // created, exists, would create, deleted …
	ID      string `json:"id,omitempty"`
	Parts   int    `json:"partitions,omitempty"`
	Factor  int    `json:"replicas,omitempty"`
	Message string `json:"error,omitempty"`

	err *cliError
}

// showOutcomes prints what became of each topic.
func (a *app) showOutcomes(all []outcome) error {
	made := make([]madeOf, len(all))
	for i := range all {
		o := &all[i]
		line := o.Done + " " + o.Topic
		if o.Parts > 0 {
			line += ": " + count(int64(o.Parts), "partition") + ", replication factor " + strconv.Itoa(o.Factor)
		}
		if o.err != nil {
			o.Message = o.err.msg
		}
		made[i] = madeOf{o, line, o.err}
	}
	return a.showMade(made, struct {
		Version int       `json:"version"`
		Topics  []outcome `json:"topics"`
	}{1, all})
}

// madeOf is what became of one thing of several: a line of JSON, one for people where it was done, and an error where not.
type madeOf struct {
	item any
	line string
	err  *cliError
}

// showMade prints what became of each thing on stdout, and on stderr what failed. If all failed the first error is returned, if some did an error
// with exit code 3.
func (a *app) showMade(all []madeOf, body any) error {
	var failed []*cliError
	items := make([]any, len(all))
	for i, m := range all {
		if items[i] = m.item; m.err != nil {
			failed = append(failed, m.err)
		}
	}
	if len(failed) < len(all) || len(failed) == 0 {
		err := a.show(result{body: body, items: items, text: func(t *text) {
			for _, m := range all {
				if m.err == nil {
					t.line("%s", m.line)
				}
			}
		}})
		if err != nil || len(failed) == 0 {
			return err
		}
	}
	for _, e := range failed[1:] {
		a.printError(e)
	}
	first := *failed[0]
	if len(failed) < len(all) {
		first.exit = exitPart
	}
	return &first
}
