package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/keeplog/keeplog/config"
)

type createFlags struct {
	partitions  int32
	replicas    int16
	configs     []string
	ifNotExists bool
	dryRun      bool
}

func newTopicCreateCommand(a *app) *cobra.Command {
	var flags createFlags
	cmd := &cobra.Command{
		Use: "create TOPIC...", Short: "Create topics", Args: wantsArgs(1, -1),
		Example: "  keeplog topic create orders -p 8 -c retention.ms=86400000",
		RunE: a.run(func(ctx context.Context, names []string) error {
			return a.ask(ctx, func(ctx context.Context, s *session) error { return s.createTopics(ctx, &flags, names) })
		}),
	}
	f := cmd.Flags()
	f.Int32VarP(&flags.partitions, "partitions", "p", -1, "`NUMBER` of partitions (-1: the broker's default)")
	f.Int16VarP(&flags.replicas, "replicas", "r", -1, "replication `FACTOR` (-1: the broker's default)")
	f.StringArrayVarP(&flags.configs, "config", "c", nil, "a topic config, `KEY=VALUE` (repeatable)")
	f.BoolVar(&flags.ifNotExists, "if-not-exists", false, "a topic that exists already is no error")
	f.BoolVar(&flags.dryRun, "dry-run", false, "only ask whether it would work")
	completeKeys(cmd, config.ScopeTopic, "=", "config")
	return cmd
}

func (s *session) createTopics(ctx context.Context, flags *createFlags, names []string) error {
	pairs, err := keyValues("-c", flags.configs)
	if err != nil {
		return err
	}
	configs := make(map[string]*string, len(pairs))
	for _, kv := range pairs {
		configs[kv[0]] = &kv[1]
	}
	if err := s.mustBeLed(ctx); err != nil {
		return err
	}
	send := s.admin.CreateTopics
	if flags.dryRun {
		send = s.admin.ValidateCreateTopics
	}
	answers, err := send(ctx, flags.partitions, flags.replicas, configs, names...)
	if err != nil {
		return err
	}
	all := make([]outcome, 0, len(names))
	for _, name := range names {
		r, ok := answers[name]
		o := outcome{Topic: name, Done: "created", Parts: int(r.NumPartitions), Factor: int(r.ReplicationFactor)}
		if r.ID != (kadm.TopicID{}) {
			o.ID = topicID(r.ID)
		}
		switch {
		case !ok:
			o.err = failf("topic %s: the broker did not answer for it", name)
		case errors.Is(r.Err, kerr.TopicAlreadyExists) && flags.ifNotExists:
			o = outcome{Topic: name, Done: "exists"}
		case r.Err != nil:
			o.err = failure(s.answered("topic "+name, r.Err, r.ErrMessage))
		case flags.dryRun:
			o.Done = "would create"
		}
		all = append(all, o)
	}
	if strings.Contains(orNull(configs["cleanup.policy"]), "compact") && !flags.dryRun {
		s.sayNotCompacted(ctx, all)
	}
	return s.app.showOutcomes(all)
}
