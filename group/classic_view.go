package group

import (
	"fmt"
)

// CheckCommit judges who commits. Generation -1 without a member is for those who assign partitions by themselves: only a
// group without members takes it.
func (c *classic) CheckCommit(r *CommitOffsetsRequest, env Env) Verdict {
	if r.Generation < 0 && c.state == classicEmpty {
		return Verdict{}
	}
	if r.Generation < 0 && r.MemberID == "" && r.InstanceID == nil {
		return Verdict{Err: ErrUnknownMember}
	}
	if !env.Known && c.Disposable() {
		if r.Version >= 9 {
			return Verdict{Err: ErrGroupNotFound}
		}
		return Verdict{Err: ErrIllegalGeneration}
	}
	m, err := c.find(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return Verdict{Err: err}
	case r.Generation != c.generation:
		return Verdict{Err: ErrIllegalGeneration}
	case c.state == classicCompleting:
		return Verdict{Err: ErrRebalanceInProgress}
	}
	c.extend(m, env.Now)
	return Verdict{}
}

// CheckFetch lets everybody read.
func (c *classic) CheckFetch(*FetchOffsetsRequest, Env) error { return nil }

// Retains: offsets of a group that was made by commits alone count from each commit; those of a group without members from
// when it lost the last one; consumers that are there keep what they read.
func (c *classic) Retains(Env) Retention {
	switch {
	case c.protocolType == nil:
		return Retention{}
	case c.state == classicEmpty:
		return Retention{Since: c.since}
	case c.consumers() && c.topics != nil && c.state == classicStable:
		return Retention{Keeps: func(topic string) bool { return c.topics[topic] }}
	}
	return Retention{Never: true}
}

// Subscribed says whether a member reads a topic. Consumers whose metadata cannot be read might read any.
func (c *classic) Subscribed(topic string) (subscribed, known bool) {
	switch {
	case c.state == classicEmpty:
		return false, true
	case !c.consumers():
		return false, false
	case c.topics == nil:
		return true, true
	}
	return c.topics[topic], true
}

// Overview is a line of a list.
func (c *classic) Overview() Overview {
	return Overview{Group: c.id, ProtocolType: text(c.protocolType), State: c.state.String(), Type: Classic}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// DescribeClassic describes the group. Metadata and the protocol are shown while the group is stable.
func (c *classic) DescribeClassic() *GroupDescription {
	d := &GroupDescription{Group: c.id, State: c.state.String(), ProtocolType: text(c.protocolType)}
	if c.state == classicStable {
		d.Protocol = text(c.protocol)
	}
	for _, m := range c.members {
		shown := MemberDescription{
			MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost, Assignment: m.assignment,
		}
		switch c.state {
		case classicStable:
			shown.Metadata = m.metadata(c.protocol)
		case classicPreparing:
			shown.Awaited = m.joining == 0
		case classicCompleting:
			shown.Awaited = m.id == c.leader && m.syncing == 0
		}
		d.Members = append(d.Members, shown)
	}
	return d
}

// DescribeConsumer: a classic group is none.
func (c *classic) DescribeConsumer(Env) *ConsumerGroupDescription {
	return &ConsumerGroupDescription{
		Group: c.id, Err: ErrGroupNotFound, Message: fmt.Sprintf("Group %s is not a consumer group.", c.id),
	}
}
