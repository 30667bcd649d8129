package group

import "time"

// classic is a group whose members choose the assignment.
type classic struct{ id string }

func newClassic(group string) *classic { return &classic{id: group} }

func loadClassic(group string, _ []Entry, _ Env) (Core, error) { return newClassic(group), nil }

func (c *classic) Type() Type { return Classic }

func (c *classic) Step(ev Event, env Env) Effects {
	if r, ok := ev.(*ConsumerHeartbeatRequest); ok {
		return joinConsumer(c, r, env)
	}
	return Effects{}
}
func (c *classic) Deadline() time.Time                            { return time.Time{} }
func (c *classic) Fail(error) []Reply                             { return nil }
func (c *classic) Vacant() bool                                   { return true }
func (c *classic) Disposable() bool                               { return true }
func (c *classic) CheckCommit(*CommitOffsetsRequest, Env) Verdict { return Verdict{} }
func (c *classic) CheckFetch(*FetchOffsetsRequest, Env) error     { return nil }
func (c *classic) Retains(Env) Retention                          { return Retention{} }
func (c *classic) Subscribed(string) (subscribed, known bool)     { return false, true }
func (c *classic) Overview() Overview { return Overview{Group: c.id, Type: Classic} }

func (c *classic) DescribeClassic() *GroupDescription { return &GroupDescription{Group: c.id} }

func (c *classic) DescribeConsumer(Env) *ConsumerGroupDescription {
	return &ConsumerGroupDescription{Group: c.id, Err: ErrGroupNotFound}
}
func (c *classic) Stored() []Entry { return nil }
