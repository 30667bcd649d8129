package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// hostsSteady is how long the brokers must have been the same before shards with groups move for the sake of balance: a restart moves them
// away, and they need not come back before the next one's restart.
const hostsSteady = 10 * time.Second

// Who answers for groups. A shard whose owner is taken for dead goes to another broker in the same decision. One whose owner is alive (it
// is going, it is drained, or it has more than its part) is taken away first, and given on when that broker has applied the record: at no
// time may two brokers think that they have it, as far as the one that lost it reports.

// planShards plans who answers for groups: nobody as long as a node does not know the records. gone are the brokers that this decision takes
// for dead.
func (p *planner) planShards(gone ...metadata.BrokerID) []metadata.Record {
	if !p.grouped() {
		return nil
	}
	hosts := p.hosts(gone)
	var records []metadata.Record
	var free []int32
	for i := range int32(metadata.Shards) {
		s := p.img.Shard(i)
		_, hosted := hosts[s.Owner]
		switch {
		case hosted:
			hosts[s.Owner]++
		case s.Owner == metadata.NoLeader && p.handed != nil && !p.handed(i):
		case s.Owner == metadata.NoLeader || slices.Contains(gone, s.Owner) || !p.img.Alive(s.Owner):
			free = append(free, i)
		case len(hosts) > 0:
			records = append(records, metadata.ShardAssigned{Shard: i, Epoch: s.Epoch, Owner: metadata.NoLeader})
		}
	}
	for _, i := range free {
		s, to := p.img.Shard(i), least(hosts)
		if s.Owner != to {
			records = append(records, metadata.ShardAssigned{Shard: i, Epoch: s.Epoch, Owner: to})
		}
		if to != metadata.NoLeader {
			hosts[to]++
		}
	}
	return records
}

// planLeaving takes a broker's shards away that is going, where there is another for them. They are given on when it has applied that, or
// with the decision that fences it.
func (p *planner) planLeaving(id metadata.BrokerID) []metadata.Record {
	if len(p.hosts(nil)) == 0 {
		return nil
	}
	var records []metadata.Record
	for i := range int32(metadata.Shards) {
		if s := p.img.Shard(i); s.Owner == id {
			records = append(records, metadata.ShardAssigned{Shard: i, Epoch: s.Epoch, Owner: metadata.NoLeader})
		}
	}
	return records
}

// hosts are the brokers that may have shards, each with 0: those that are up and stay, drained ones only where there are no others.
func (p *planner) hosts(gone []metadata.BrokerID) map[metadata.BrokerID]int {
	hosts, drained := map[metadata.BrokerID]int{}, map[metadata.BrokerID]int{}
	for _, b := range p.img.Brokers() {
		switch {
		case slices.Contains(gone, b.ID) || !p.mayLead(b.ID):
		case p.drained(b.ID):
			drained[b.ID] = 0
		default:
			hosts[b.ID] = 0
		}
	}
	if len(hosts) == 0 {
		return drained
	}
	return hosts
}

// least is the broker with the fewest shards, the lowest of them; NoLeader where there is none.
func least(hosts map[metadata.BrokerID]int) metadata.BrokerID {
	if len(hosts) == 0 {
		return metadata.NoLeader
	}
	return slices.MinFunc(slices.Collect(maps.Keys(hosts)), func(a, b metadata.BrokerID) int {
		return cmp.Or(cmp.Compare(hosts[a], hosts[b]), cmp.Compare(a, b))
	})
}

// most is the broker with the most shards, the lowest of them.
func most(hosts map[metadata.BrokerID]int) metadata.BrokerID {
	return slices.MaxFunc(slices.Collect(maps.Keys(hosts)), func(a, b metadata.BrokerID) int {
		return cmp.Or(cmp.Compare(hosts[a], hosts[b]), cmp.Compare(b, a))
	})
}

// planBalance takes shards away from brokers that have more than one above the others, once each has an owner. movable says which may be
// taken.
func (p *planner) planBalance(movable func(shard int32) bool) []metadata.Record {
	hosts := p.hosts(nil)
	for i := range int32(metadata.Shards) {
		owner := p.img.Shard(i).Owner
		if _, ok := hosts[owner]; !ok {
			return nil
		}
		hosts[owner]++
	}
	if hosts[most(hosts)]-hosts[least(hosts)] <= 1 {
		return nil
	}
	owned := map[metadata.BrokerID][]int32{}
	for i := range int32(metadata.Shards) {
		if movable(i) {
			owned[p.img.Shard(i).Owner] = append(owned[p.img.Shard(i).Owner], i)
		}
	}
	var records []metadata.Record
	for len(hosts) > 0 {
		from, to := most(hosts), least(hosts)
		if hosts[from]-hosts[to] <= 1 {
			break
		}
		n := len(owned[from])
		if n == 0 {
			delete(hosts, from) // none of what it has can move: it stays
			continue
		}
		i := owned[from][n-1]
		owned[from] = owned[from][:n-1]
		hosts[from]--
		hosts[to]++
		records = append(records, metadata.ShardAssigned{Shard: i, Epoch: p.img.Shard(i).Epoch, Owner: metadata.NoLeader})
	}
	return records
}

// tendShards does with the shards what is due. The plan is made twice: the first one, for which nobody waits, says whether there is
// anything to do.
func (c *Controller) tendShards(ctx context.Context, now time.Duration) error {
	if err := c.tendLevel(ctx); err != nil {
		return err
	}
	plan := func(p *planner) ([]metadata.Record, error) {
		if records := p.planShards(); len(records) > 0 {
			return records, nil
		}
		c.liveMu.Lock()
		steady := c.live.steady(p.hosts(nil), now)
		c.liveMu.Unlock()
		return p.planBalance(func(i int32) bool { return steady || c.o.Busy != nil && !c.o.Busy(i) }), nil
	}
	if records, _ := plan(c.planner()); len(records) == 0 {
		return nil
	}
	_, err := c.all(ctx, plan)
	return err
}

// release is a shard that was taken away from a live broker: it is given on when that one has applied the record at index.
type release struct {
	from  metadata.BrokerID
	index int64
}

// released notes the shards that an accepted record has taken away.
func (l *liveness) released(img *metadata.Image, rec metadata.Record, r metadata.Result) {
	if s, ok := rec.(metadata.ShardAssigned); ok && s.Owner == metadata.NoLeader && r.Refusal == metadata.Accepted {
		if l.releases == nil {
			l.releases = map[int32]release{}
		}
		l.releases[s.Shard] = release{img.Shard(s.Shard).Owner, r.Value}
	}
}

// handed says that nobody has a shard any more that the image gives to nobody. Whose it was is known to the controller that took it away;
// another one waits for everybody.
func (l *liveness) handed(img *metadata.Image, shard int32) bool {
	index := img.Shard(shard).Epoch
	r, known := l.releases[shard]
	if !known || r.index != index {
		return l.applied(img, uint64(index), metadata.NoLeader)
	}
	b, ok := img.Broker(r.from)
	if !ok || b.Fenced || b.Epoch > index { // gone, or a process that never had it
		return true
	}
	p := l.pulse(b)
	return p != nil && p.applied >= uint64(index)
}

// steady says that the brokers that may have shards have been the same for a while.
func (l *liveness) steady(hosts map[metadata.BrokerID]int, now time.Duration) bool {
	ids := slices.Sorted(maps.Keys(hosts))
	if !slices.Equal(ids, l.hosts) {
		l.hosts, l.hostsSince = ids, now
	}
	return now-l.hostsSince >= hostsSteady
}
