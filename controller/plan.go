package controller

import (
	"maps"
	"math/rand/v2"
	"strconv"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
)

// maxPartitions is the most partitions that one request may ask for.
const maxPartitions = 10_000

// planner is what the plans of one request look at. It is used by one goroutine, and thrown away after the request.
type planner struct {
	img    *metadata.Image
	static *config.Broker
	rand   *rand.Rand
	newID  func() metadata.TopicID
	// live says whether a registered process is known to be running, or may be.
	live func(*metadata.Broker, *Registration) bool
	// heard says whether brokers have applied an image in which the partition has this leader epoch, or are fenced; nil where
	// nobody reports.
	heard func(ref PartitionRef, epoch int32, ids []metadata.BrokerID) bool
	// handed says that nobody has a shard of groups any more that has no owner; nil where nobody reports.
	handed func(shard int32) bool
	// orders is what the brokers have said of their replicas. reported says that all that are alive say it, so that of who has not yet nothing is
	// known; else nobody may ever.
	orders   map[metadata.BrokerID]order
	reported bool
	// known is what the brokers say that they know.
	known map[metadata.BrokerID]knowledge
	// assume is what suppose was told; rules are those of the topics looked at so far.
	assume map[metadata.BrokerID]bool
	rules  map[metadata.TopicID]*config.Topic
	// drains are the brokers that are drained, once somebody has asked.
	drains map[metadata.BrokerID]bool
	// cleared are the partitions whose eligible set this plan has emptied.
	cleared map[PartitionRef]bool
	// after is the image with the plan's records and without the next decision's, once it is known what became of them.
	after *metadata.Image
}

// layers are the settings of the cluster, without any topic's.
func (p *planner) layers() config.Layers {
	return config.Layers{
		Static: p.static, Cluster: p.img.Configs(metadata.ResourceBroker, ""), Brokers: len(p.members()),
	}
}

func (p *planner) topicLayers(own map[string]string, replicas int) config.Layers {
	l := p.layers()
	l.Topic, l.Replicas = own, replicas
	return l
}

func (p *planner) brokerLayers(id metadata.BrokerID) config.Layers {
	l := p.layers()
	l.Broker = p.img.Configs(metadata.ResourceBroker, strconv.Itoa(int(id)))
	return l
}

// members are the bootstrap voters and all brokers that registered, without those that were removed.
func (p *planner) members() map[metadata.BrokerID]bool {
	all := map[metadata.BrokerID]bool{}
	for _, v := range p.img.Voters() {
		if m, ok := p.img.Member(v.ID); ok && !m.Removed {
			all[v.ID] = true
		}
	}
	for _, b := range p.img.Brokers() {
		all[b.ID] = true
	}
	return all
}

// defaultReplicas is the replication factor of a topic that names none: three, or as many as there are brokers that may take
// replicas.
func (p *planner) defaultReplicas() int {
	all := p.members()
	maps.DeleteFunc(all, func(id metadata.BrokerID, _ bool) bool { return p.drained(id) })
	layers := p.layers()
	layers.Brokers = len(all)
	if l := layers.DescribeBroker([]string{"default.replication.factor"}); len(l) == 1 && l[0].Value != nil {
		if n, err := strconv.Atoi(*l[0].Value); err == nil && n > 0 {
			return n
		}
	}
	return p.static.ReplicationFactor(len(all))
}

// usable says that the broker can take replicas now.
func usable(b *metadata.Broker) bool { return !b.Fenced && !b.ShuttingDown }
