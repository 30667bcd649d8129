package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/keeplog/keeplog/metadata"
)

// What the versions of a cluster's nodes know need not be the same: a rolling update makes them differ for a while. Every broker says which
// features it knows, and up to which level, when it registers and with every report. A level that has been set is known to all: it is refused
// while somebody does not know it, and a broker that does not know it is not registered.
//
// The level of metadata.LevelFeature says which kinds of record may be written. It follows the oldest node by itself: it goes up with the report
// of the last one that was updated, and never down, for the records are in the log then. So a cluster can go back to the version before as long
// as one of its nodes, running or not, has not been updated. A new cluster begins with all that its first broker knows.

// noteFeatures remembers what a broker says that it knows.
func (c *Controller) noteFeatures(id metadata.BrokerID, epoch int64, features []Feature) {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	if c.known == nil {
		c.known = map[metadata.BrokerID]knowledge{}
	}
	if c.known[id].epoch <= epoch {
		c.known[id] = knowledge{epoch, features}
	}
}

// knowledge is what one incarnation of a broker knows. It is the same for every term.
type knowledge struct {
	epoch    int64
	features []Feature
}

// knowing is how a plan asks what a broker knows.
func (c *Controller) knowing() map[metadata.BrokerID]knowledge {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	return maps.Clone(c.known)
}

// levels are what a list of features says of one. A version that says nothing knows what there was before the first one that does.
func levels(features []Feature, name string) (Feature, bool) {
	if len(features) == 0 {
		features = []Feature{{Name: elrFeature, Min: 0, Max: 1}}
	}
	i := slices.IndexFunc(features, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		return Feature{Name: name}, false
	}
	return features[i], true
}

// lacking says who does not know a level of a feature, nothing where all do: of the registered brokers, and for the records of the log of all nodes that keep it. Of
// one that has not reported since it registered nothing is known.
func (p *planner) lacking(name string, level int16) string {
	nodes := map[metadata.BrokerID]bool{}
	for _, b := range p.img.Brokers() {
		nodes[b.ID] = true
	}
	if name == metadata.LevelFeature {
		for _, m := range p.img.Members() {
			nodes[m.ID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		k, said := p.known[id]
		b, registered := p.img.Broker(id)
		f, knows := levels(k.features, name)
		switch {
		case !registered:
			return fmt.Sprintf("Node %d has not registered as a broker yet, so it is not known whether it supports this feature.", id)
		case !said || k.epoch != b.Epoch:
			return fmt.Sprintf("Broker %d has not reported to this controller, so it is not known whether it supports this feature.", id)
		case !knows:
			return fmt.Sprintf("Broker %d does not support this feature.", id)
		case level < f.Min || level > f.Max:
			return fmt.Sprintf("Broker %d only supports versions %d-%d.", id, f.Min, f.Max)
		}
	}
	return ""
}

// checkKnows refuses a broker that does not know a level that a feature has: it would pass over records, or miss what they mean. Of a version
// that does not say what it knows only the records count, for those may be unknown to it; of which level they are the feature need not say.
func (p *planner) checkKnows(r *Registration) error {
	inUse := map[string]int16{metadata.LevelFeature: p.img.Level()}
	for name, level := range p.img.Features() {
		inUse[name] = max(inUse[name], level)
	}
	for _, name := range slices.Sorted(maps.Keys(inUse)) {
		level := inUse[name]
		f, _ := levels(r.Features, name)
		if (level < f.Min || level > f.Max) && (len(r.Features) > 0 || name == metadata.LevelFeature) {
			return answer(ErrUnsupportedFeature, "Broker %d cannot be registered: version %d of feature %s is in use, and this broker supports %d-%d. Run it with a newer version.",
				r.ID, level, name, f.Min, f.Max)
		}
	}
	return nil
}

// planLevel raises the level of the records as far as every node knows them, and then sets what a new cluster has. r is a broker that registers,
// nil for none: on a node alone there is no other time for it.
func (p *planner) planLevel(r *Registration) []metadata.Record {
	if r != nil {
		b, registered := p.img.Broker(r.ID)
		if !registered || p.heard != nil {
			return nil
		}
		if p.known == nil {
			p.known = map[metadata.BrokerID]knowledge{}
		}
		p.known[r.ID] = knowledge{b.Epoch, r.Features}
	}
	if p.img.Feature(metadata.LevelFeature) >= metadata.MaxLevel || p.lacking(metadata.LevelFeature, metadata.MaxLevel) != "" {
		return nil
	}
	records := []metadata.Record{metadata.FeatureLevel{Name: metadata.LevelFeature, Level: metadata.MaxLevel}}
	if p.img.Level() == 0 && p.img.Feature(GroupFeature) == 0 && p.lacking(GroupFeature, 1) == "" {
		records = append(records, metadata.FeatureLevel{Name: GroupFeature, Level: 1})
	}
	return records
}

// tendLevel raises the level of the records when it is time.
func (c *Controller) tendLevel(ctx context.Context) error {
	if c.o.Proposer.Image().Feature(metadata.LevelFeature) >= metadata.MaxLevel || len(c.planner().planLevel(nil)) == 0 {
		return nil
	}
	d, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planLevel(nil), nil })
	if err == nil && d.index > 0 {
		c.o.Logger.Info("every node is of a version that knows the records of level "+strconv.Itoa(metadata.MaxLevel)+": they are written from now on",
			"event", "metadata.level", "feature", metadata.LevelFeature, "level", metadata.MaxLevel)
	}
	return err
}

// newCluster are the records that a cluster begins with, before its first broker: what that one knows is on.
func (p *planner) newCluster(r *Registration) []metadata.Record {
	if len(p.img.Brokers()) > 0 || p.img.TopicCount() > 0 || p.img.Feature(elrFeature) > 0 {
		return nil
	}
	var records []metadata.Record
	for _, f := range SupportedFeatures() {
		if theirs, knows := levels(r.Features, f.Name); knows && theirs.Max >= f.Max {
			records = append(records, metadata.FeatureLevel{Name: f.Name, Level: f.Max})
		}
	}
	return records
}

// grouped says whether records of groups may be written.
func (p *planner) grouped() bool { return p.img.Level() >= metadata.KindShardAssigned.Level() }
