package node

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/lag"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
	"github.com/keeplog/keeplog/replication/quorum"
)

// openGroups makes the coordinator of the groups whose shards this broker has. It serves none before it is told who has which.
func (n *Node) openGroups() {
	live := func(key string) func() time.Duration {
		return func() time.Duration { return n.settings.Live().Duration(key) }
	}
	n.groups = group.New(group.Options{
		Node: n.cfg.NodeID(), Log: groupLog{n.quorum}, Tables: n.quorum.Tables(), Clock: groupClock{n.o.Now}, Settings: n.settings.group,
		Leased: n.leased, NewID: newMemberID, ExpiryInterval: live("offsets.retention.check.interval.ms"),
		CommitTimeout: live("offsets.commit.timeout.ms"), Logger: n.loggers.room("group"),
	})
}

// followGroups tells the coordinator of groups who has which shard, from now on. In a cluster a change of shards is reported at once, when the
// coordinator goes by it: who gets one waits for who had it.
func (n *Node) followGroups() {
	groups := n.groups
	n.quorum.Subscribe(func(d metadata.Delta, img *metadata.Image) {
		groups.Changed(&d, img)
		if n.cluster == nil {
			return
		}
		n.cluster.grouped.Store(img.Index())
		if len(d.Shards) > 0 {
			n.cluster.due()
		}
	})
}

// applied is the index of the newest image that this broker goes by, which the controller is told: a shard of groups that it has given up there
// is given to another broker, so it must not answer for it any more. The partitions may hear of an image before the coordinator of groups does.
func (c *cluster) applied() uint64 { return min(c.node.applier.index(), c.grouped.Load()) }

// startLag makes what tells how far groups are behind, and takes its samples until the node stops.
func (n *Node) startLag() *lag.Sampler {
	s := lag.New(n.quorum.Tables(), lagSource{n})
	n.jobs.Go(func() {
		t := time.NewTicker(lag.Interval / 4)
		defer t.Stop()
		for {
			s.Tick(n.o.Now())
			select {
			case <-n.stop:
				return
			case <-t.C:
			}
		}
	})
	return s
}

// lagSource is what the lag of groups is computed from.
type lagSource struct{ n *Node }

// Led goes through the partitions that this broker leads and whose ends it can tell.
func (s lagSource) Led(f func(p lag.Partition, e lag.Extent) bool) {
	s.n.replicas.All(func(id log.Identity, p *isr.Partition) bool {
		start, end, ok := p.Leads()
		return !ok || f(lag.Partition{Topic: id.TopicID, Partition: id.Partition}, lag.Extent{Start: start, End: end})
	})
}

// Find says who leads a partition. Where that is this broker by the image, but it has not got so far yet, is cut off, or its log has failed,
// the end is not known to anybody.
func (s lagSource) Find(p lag.Partition) (lag.Extent, lag.Place) {
	if local, err := s.n.replicas.Partition(p.Topic, p.Partition); err == nil {
		if start, end, ok := local.Leads(); ok {
			return lag.Extent{Start: start, End: end}, lag.Here
		}
	}
	img := s.n.quorum.Image()
	if part, ok := img.Partition(p.Topic, p.Partition); ok {
		switch img.LeaderOf(part) {
		case metadata.NoLeader:
			return lag.Extent{Start: lag.Unknown, End: lag.Unknown}, lag.Nowhere
		case s.n.cfg.NodeID():
			return lag.Extent{Start: lag.Unknown, End: lag.Unknown}, lag.Here
		}
	}
	return lag.Extent{Start: lag.Unknown, End: lag.Unknown}, lag.Elsewhere
}

// TimeOf reads the time of a record.
func (s lagSource) TimeOf(p lag.Partition, o record.Offset) (ms int64, ok bool, err error) {
	local, err := s.n.replicas.Partition(p.Topic, p.Partition)
	if err != nil {
		return 0, false, err
	}
	return local.TimeOf(o)
}

// closeGroups answers who waits for others to join: another broker will coordinate them.
func (n *Node) closeGroups() {
	if n.groups != nil {
		n.groups.Close()
		n.groups = nil
	}
}

// acknowledged is a report that the controller has answered: when it was sent, by the clock of groups and by the monotonic one.
type acknowledged struct{ at, sent time.Time }

// leased says when the last report was sent that the controller acknowledged, and whether the lease that it gave still runs. A node alone asks
// nobody.
func (n *Node) leased() (sent time.Time, held bool) {
	if n.cluster == nil {
		return n.o.Now(), true
	}
	last := n.lease.Load()
	if last == nil {
		return time.Time{}, false
	}
	return last.at, time.Since(last.sent) < leaseTime
}

// newMemberID is a random id as Kafka writes them. None begins with a dash, which would look like an option to commands.
func newMemberID() string {
	var b [16]byte
	for {
		rand.Read(b[:])
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a random UUID (RFC 9562)
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id
		}
	}
}

// groupLog is the metadata log as the coordinator of groups sees it.
type groupLog struct{ *quorum.Quorum }

// ProposeOffsets commits records, each accepted or refused.
func (l groupLog) ProposeOffsets(records []metadata.Record, then func(uint64, []metadata.Result, error)) {
	l.OfferOffsets(records, func(a quorum.Applied, err error) { then(a.Index, a.Results, err) })
}

// Applied is the index that the tables of groups and the image have reached.
func (l groupLog) Applied() uint64 { return l.Image().Index() }

// WaitApplied waits until they have reached one.
func (l groupLog) WaitApplied(ctx context.Context, index uint64) error {
	return l.WaitIndex(ctx, index)
}

// groupClock gives the coordinator the time.
type groupClock struct{ now func() time.Time }

// Now is the wall clock.
func (c groupClock) Now() time.Time { return c.now() }

// After calls f after d.
func (c groupClock) After(d time.Duration, f func()) (stop func()) {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// groupSettings are the settings of groups in an image.
type groupSettings struct {
	img    *metadata.Image
	layers config.Layers
	// all are those of a group that has none of its own.
	all group.Settings
}

func newGroupSettings(img *metadata.Image, l config.Layers, live *config.Broker) *groupSettings {
	g := &groupSettings{img: img, layers: l}
	g.all = group.Settings{
		MinSessionTimeout: live.Duration("group.min.session.timeout.ms"), MaxSessionTimeout: live.Duration("group.max.session.timeout.ms"),
		InitialRebalanceDelay: live.Duration("group.initial.rebalance.delay.ms"), MaxSize: live.Int("group.max.size"),
		OffsetMetadataMax: live.Int("offset.metadata.max.bytes"), OffsetRetention: live.Duration("offsets.retention.minutes"),
	}
	c := &g.all.Consumer
	c.Enabled = slices.Contains(live.List("group.coordinator.rebalance.protocols"), "consumer") && img.Feature(controller.GroupFeature) > 0
	c.MaxSize, c.Migration = live.Int("group.consumer.max.size"), strings.ToLower(live.String("group.consumer.migration.policy"))
	c.RegexRefreshInterval = live.Duration("group.consumer.regex.refresh.interval.ms")
	for _, a := range live.List("group.consumer.assignors") {
		c.Assignors = append(c.Assignors, config.AssignorName(a))
	}
	setConsumer(c, l.Group(nil))
	return g
}

// group is what is in force for a group.
func (s *settings) group(name string) *group.Settings {
	g := s.groups.Load()
	own := g.img.Configs(metadata.ResourceGroup, name)
	if len(own) == 0 {
		return &g.all
	}
	one := g.all
	setConsumer(&one.Consumer, g.layers.Group(own))
	return &one
}

func setConsumer(c *group.ConsumerSettings, g config.Group) {
	c.SessionTimeout, c.HeartbeatInterval, c.AssignmentInterval = g.SessionTimeout, g.HeartbeatInterval, g.AssignmentInterval
}
