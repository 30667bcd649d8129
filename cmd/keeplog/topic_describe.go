package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type topicDescription struct {
	Topic      string                 `json:"topic"`
	ID         string                 `json:"id"`
	Internal   bool                   `json:"internal"`
	Durable    *bool                  `json:"durable_on_ack"` // null: the broker does not tell
	Compacts   *bool                  `json:"compacts"`       // null: cleanup.policy does not ask for it
	Partitions []partitionDescription `json:"partitions"`
	Configs    []configDescription    `json:"configs"`
}

type partitionDescription struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Start       int64   `json:"start_offset"`
	High        int64   `json:"high_watermark"`
	// Lost are records that the disk of a replica has lost after they were acknowledged.
	Lost  []lostRecords `json:"lost,omitempty"`
	Error string        `json:"error,omitempty"`
}

// lostRecords are Count offsets from From up to To, exclusive, that a replica has no more.
type lostRecords struct {
	Broker int32 `json:"broker"`
	From   int64 `json:"from_offset"`
	To     int64 `json:"to_offset"`
	Count  int64 `json:"count"`
}

type configDescription struct {
	Key       string  `json:"key"`
	Value     *string `json:"value"`
	Source    string  `json:"source"`
	Sensitive bool    `json:"sensitive,omitempty"`
}

func newTopicDescribeCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "describe TOPIC...", Short: "Show id, partitions, offsets and configs of topics", Args: wantsArgs(1, -1),
		ValidArgsFunction: a.completeTopics(0),
		RunE: a.run(func(ctx context.Context, names []string) error {
			return a.ask(ctx, func(ctx context.Context, s *session) error {
				all, err := s.describeTopics(ctx, names)
				if err != nil {
					return err
				}
				return a.showDescriptions(all)
			})
		}),
	}
}

func (s *session) describeTopics(ctx context.Context, names []string) ([]topicDescription, error) {
	details, err := s.topics(ctx, names...)
	if err != nil {
		return nil, err
	}
	var keys []tp
	for _, name := range names {
		for _, p := range details[name].Partitions.Sorted() {
			keys = append(keys, tp{name, p.Partition})
		}
	}
	// What no leader tells soon is left open: the rest is worth showing.
	offsets, err := s.bounds(ctx, keys, boundsOptions{wantEnd: true, patience: min(toExplain, s.app.flags.timeout/4)})
	if err != nil {
		return nil, err
	}
	configs, err := s.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, err
	}
	if len(offsets.failed) > 0 {
		// Others may lead soon; but an address that leads nowhere stays wrong.
		e := s.noLeader(ctx, slices.SortedFunc(maps.Keys(offsets.failed), tp.compare)[0], context.DeadlineExceeded)
		if e.advertised {
			return nil, e
		}
		s.app.say("%s without offsets: %s", isAre(len(offsets.failed), "partition"), e.msg)
	}
	compacts := s.compacts(ctx, names...)
	var lost map[topicPartition][]lostRecords
	limit(ctx, toExplain, func(ctx context.Context) { lost = s.lostRecords(ctx, details) })
	var all []topicDescription
	for _, name := range names {
		d := details[name]
		td := topicDescription{Topic: name, ID: topicID(d.ID), Internal: d.IsInternal}
		if works, asked := compacts[name]; asked {
			td.Compacts = &works
		}
		for _, p := range d.Partitions.Sorted() {
			described := describePartition(p, offsets)
			described.Lost = lost[topicPartition{name, p.Partition}]
			td.Partitions = append(td.Partitions, described)
		}
		rc, err := configs.On(name, nil)
		if err == nil {
			err = rc.Err
		}
		if err != nil {
			return nil, s.answered("configs of topic "+name, err, rc.ErrMessage)
		}
		for _, c := range rc.Configs {
			td.Configs = append(td.Configs, configDescription{c.Key, c.Value, sourceName(c.Source), c.Sensitive})
			if c.Key == "flush.messages" {
				durable := c.MaybeValue() == "1"
				td.Durable = &durable
			}
		}
		slices.SortFunc(td.Configs, func(a, b configDescription) int { return strings.Compare(a.Key, b.Key) })
		all = append(all, td)
	}
	return all, nil
}

func describePartition(p kadm.PartitionDetail, offsets *bounds) partitionDescription {
	out := partitionDescription{
		Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
		Replicas: p.Replicas, ISR: p.ISR, Start: -1, High: -1,
	}
	if p.Err != nil {
		out.Error = p.Err.Error()
	}
	if start, ok := offsets.start[tp{p.Topic, p.Partition}]; ok {
		out.Start = start
	}
	if end, ok := offsets.end[tp{p.Topic, p.Partition}]; ok {
		out.High = end
	}
	return out
}

// sourceName is where a config value comes from, in few words.
func sourceName(s kmsg.ConfigSource) string {
	switch s {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "topic"
	case kmsg.ConfigSourceDynamicBrokerConfig:
		return "broker, dynamic"
	case kmsg.ConfigSourceDynamicDefaultBrokerConfig:
		return "cluster, dynamic"
	case kmsg.ConfigSourceStaticBrokerConfig:
		return "broker, static"
	case kmsg.ConfigSourceDefaultConfig:
		return "default"
	}
	return strings.ToLower(s.String())
}

func (a *app) showDescriptions(all []topicDescription) error {
	items := make([]any, len(all))
	for i := range all {
		items[i] = all[i]
	}
	body := struct {
		Version int                `json:"version"`
		Topics  []topicDescription `json:"topics"`
	}{1, all}
	return a.show(result{body: body, items: items, text: func(t *text) {
		for i := range all {
			if i > 0 {
				t.line("")
			}
			all[i].write(t)
		}
	}})
}

func (d *topicDescription) write(t *text) {
	replicas := 0
	for _, p := range d.Partitions {
		replicas = max(replicas, len(p.Replicas))
	}
	t.line("topic %s  id %s  partitions %d  replicas %d", d.Topic, d.ID, len(d.Partitions), replicas)
	for _, c := range d.Configs {
		if c.Key == "flush.messages" && d.Durable != nil && !*d.Durable {
			t.line("not durable on ack: flush.messages is %s", orNull(c.Value))
		}
	}
	if d.Compacts != nil && !*d.Compacts {
		t.line("%s", notCompacted)
	}
	for _, p := range d.Partitions {
		for _, l := range p.Lost {
			t.line("%s", l.words(p.Partition))
		}
	}
	t.line("")
	rows := make([][]string, 0, len(d.Partitions))
	for _, p := range d.Partitions {
		row := []string{
			strconv.Itoa(int(p.Partition)), number(int64(p.Leader)), numbers(p.Replicas), numbers(p.ISR),
			number(p.Start), number(p.High),
		}
		if t.wide {
			row = append(row, number(int64(p.LeaderEpoch)), p.Error)
		}
		rows = append(rows, row)
	}
	head := []string{"PARTITION", "LEADER", "REPLICAS", "ISR", "START", "HIGH"}
	if t.wide {
		head = append(head, "EPOCH", "ERROR")
	}
	t.table(head, rows)
	t.line("")
	rows, defaults := nil, 0
	for _, c := range d.Configs {
		if c.Source == "default" && !t.wide {
			defaults++
			continue
		}
		value := orNull(c.Value)
		if c.Sensitive {
			value = "(hidden)"
		}
		rows = append(rows, []string{c.Key, value, c.Source})
	}
	if len(rows) > 0 {
		t.table([]string{"CONFIG", "VALUE", "SOURCE"}, rows)
	}
	if defaults > 0 {
		t.line("%s at the default (-o wide shows them)", count(int64(defaults), "config"))
	}
}

// number prints n, and "-" for what is not known.
func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func numbers(ns []int32) string {
	if len(ns) == 0 {
		return "-"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ns), " ", ","), "[]")
}
