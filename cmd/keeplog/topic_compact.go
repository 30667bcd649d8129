package main

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
)

// notCompacted is said of a topic whose policy asks for compaction, where the broker does none.
const notCompacted = "not compacted: " + config.NoCompaction

// compacts tells of each of the topics whose policy asks for compaction whether the broker compacts it: the documentation that comes with the
// setting says so where it does not. A broker that does not answer says nothing.
func (s *session) compacts(ctx context.Context, topics ...string) map[string]bool {
	req := &kmsg.DescribeConfigsRequest{IncludeDocumentation: true}
	for _, t := range topics {
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{
			ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: t, ConfigNames: []string{"cleanup.policy"},
		})
	}
	found := map[string]bool{}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return found
	}
	for _, r := range resp.Resources {
		for _, c := range r.Configs {
			if c.Value == nil || !slices.Contains(strings.Split(*c.Value, ","), "compact") {
				continue
			}
			found[r.ResourceName] = c.Documentation == nil || !strings.Contains(*c.Documentation, config.NoCompaction)
		}
	}
	return found
}

// sayNotCompacted tells of each topic that was just made or altered, and is not compacted although its policy now asks for it.
func (s *session) sayNotCompacted(ctx context.Context, done []outcome) {
	var topics []string
	for i := range done {
		if done[i].err == nil {
			topics = append(topics, done[i].Topic)
		}
	}
	found := s.compacts(ctx, topics...)
	for _, t := range topics {
		if works, asked := found[t]; asked && !works {
			s.app.say("topic %s: %s", t, notCompacted)
		}
	}
}
