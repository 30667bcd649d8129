package group

import (
	"fmt"
	"slices"
)

// CheckCommit implements [Core]. A member commits in its own epoch; in an older one it may still commit what it was given in
// that epoch or before and holds since (KIP-1251): its heartbeat may have been answered while the commit was under way.
func (c *consumer) CheckCommit(r *CommitOffsetsRequest, _ Env) Verdict {
	if r.Generation < 0 && len(c.members) == 0 {
		return Verdict{}
	}
	m := c.members[r.MemberID]
	if m == nil {
		return Verdict{Err: ErrUnknownMember}
	}
	stale := ErrStaleMemberEpoch
	if m.classic != nil {
		stale = ErrIllegalGeneration
	}
	switch {
	case m.classic == nil && r.Version < 9:
		return Verdict{Err: ErrUnsupportedVersion}
	case r.Generation == m.epoch:
		return Verdict{}
	case r.Generation > m.epoch:
		return Verdict{Err: stale}
	}
	return Verdict{Partition: func(topic TopicID, partition int32) error {
		epoch, held := m.assigned.find(topic, partition)
		if !held {
			epoch, held = m.revoking.find(topic, partition)
		}
		if !held || r.Generation < epoch {
			return stale
		}
		return nil
	}}
}

// CheckFetch implements [Core].
func (c *consumer) CheckFetch(r *FetchOffsetsRequest, _ Env) error {
	if r.MemberID == "" && r.MemberEpoch < 0 {
		return nil
	}
	switch m := c.members[r.MemberID]; {
	case m == nil:
		return ErrUnknownMember
	case r.MemberEpoch == m.epoch:
		return nil
	case m.classic != nil:
		return ErrIllegalGeneration
	}
	return ErrStaleMemberEpoch
}

// Retains implements [Core]: offsets count from their commit on, and what a member reads is kept.
func (c *consumer) Retains(Env) Retention { return Retention{Keeps: c.subscribed} }

// Subscribed implements [Core].
func (c *consumer) Subscribed(topic string) (subscribed, known bool) {
	return c.subscribed(topic), true
}

// Overview implements [Core].
func (c *consumer) Overview() Overview {
	return Overview{Group: c.id, ProtocolType: consumerProtocol, State: c.state(), Type: Consumer}
}

// DescribeClassic implements [Core]: a consumer group is none.
func (c *consumer) DescribeClassic() *GroupDescription {
	return &GroupDescription{
		Group: c.id, Err: ErrGroupNotFound, Message: fmt.Sprintf("Group %s is not a classic group.", c.id), State: stateDead,
	}
}

// DescribeConsumer implements [Core].
func (c *consumer) DescribeConsumer(env Env) *ConsumerGroupDescription {
	d := &ConsumerGroupDescription{
		Group: c.id, State: c.state(), Assignor: c.assignorName(), GroupEpoch: c.epoch, AssignmentEpoch: c.assignmentEpoch,
	}
	if d.Assignor == "" {
		d.Assignor = defaultAssignor(env.Settings).name()
	}
	for _, id := range c.memberIDs() {
		m := c.members[id]
		held := make(grants)
		for _, some := range []grants{m.assigned, m.revoking} {
			for topic, list := range some {
				held.add(topic, list...)
			}
		}
		d.Members = append(d.Members, ConsumerMemberDescription{
			MemberID: id, InstanceID: optional(m.instance), RackID: optional(m.rack), MemberEpoch: m.epoch,
			ClientID: m.clientID, ClientHost: m.clientHost, SubscribedTopics: slices.Clone(m.topics), Regex: &m.regex,
			Assignment: told(held), Target: toldPartitions(c.target[id]), Classic: m.classic != nil,
		})
	}
	return d
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func toldPartitions(p Partitions) []TopicPartitions {
	list := make([]TopicPartitions, 0, len(p))
	for _, id := range p.topics() {
		list = append(list, TopicPartitions{Topic: id, Partitions: slices.Clone(p[id])})
	}
	return list
}

// Size implements [Core].
func (c *consumer) Size() int {
	n := 2048
	for id, m := range c.members {
		n += 768 + 4*len(id) + len(m.clientID) + len(m.clientHost) + len(m.regex)
		for _, topic := range m.topics {
			n += 16 + len(topic)
		}
		if m.classic != nil {
			for _, p := range m.classic.protocols {
				n += 64 + len(p.Name) + len(p.Metadata)
			}
		}
		n += 64*len(m.assigned) + 4*c.target[id].Count()
	}
	for _, r := range c.regexes {
		for _, topic := range r.topics {
			n += 16 + len(topic)
		}
	}
	return n + 96*len(c.holders)
}
