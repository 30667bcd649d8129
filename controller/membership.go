package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/keeplog/keeplog/metadata"
)

// Drain gives a broker no new replicas and moves its leaderships to others, or ends that. It outlives restarts. The replicas
// that it has are moved by reassignment.
func (c *Controller) Drain(ctx context.Context, id metadata.BrokerID, on bool) error {
	_, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planDrain(id, on) })
	if err != nil || !on {
		return err
	}
	_, err = c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planReconcile(false, nil), nil })
	return err
}

func (p *planner) planDrain(id metadata.BrokerID, on bool) ([]metadata.Record, error) {
	if _, ok := p.img.Broker(id); !ok {
		return nil, answer(ErrBrokerNotRegistered, "Broker %d is not registered.", id)
	}
	if p.drained(id) == on {
		return nil, nil
	}
	set := metadata.Setting{Key: drainKey}
	if on {
		set.Value = new("true")
	}
	return []metadata.Record{drainRecord(id, set)}, nil
}

func drainRecord(id metadata.BrokerID, set metadata.Setting) metadata.Record {
	return metadata.ConfigChanged{
		Resource: metadata.Resource{Kind: metadata.ResourceBroker, Name: strconv.Itoa(int(id))}, Settings: []metadata.Setting{set},
	}
}

// drained says that a broker gets no new replicas, and leads only what nobody else can.
func (p *planner) drained(id metadata.BrokerID) bool {
	if p.drains == nil {
		p.drains = map[metadata.BrokerID]bool{}
		for _, b := range p.img.Brokers() {
			if p.img.Configs(metadata.ResourceBroker, strconv.Itoa(int(b.ID)))[drainKey] == "true" {
				p.drains[b.ID] = true
			}
		}
	}
	return p.drains[id]
}

// drainKey is the setting of a broker that is drained; it is one so that it outlives restarts and every tool shows it.
const drainKey = "keeplog.broker.drained"

// UnregisterBroker takes a broker out of the cluster. One that is alive and holds replicas is refused; one that is dead is
// taken out with its replicas still assigned to it, as Kafka does, for a reassignment to replace. One that is alive goes as in a controlled
// shutdown: what it answers for is taken away, and it is taken out when it has heard of that, or its session has ended. ctx bounds the wait
// for that; a broker that was not waited for goes on leaving, and another call takes it out.
func (c *Controller) UnregisterBroker(ctx context.Context, id metadata.BrokerID) error {
	for {
		c.liveMu.Lock()
		wake := c.wake
		c.liveMu.Unlock()
		leaves := false
		_, err := c.all(ctx, func(p *planner) (records []metadata.Record, err error) {
			records, leaves, err = p.planUnregister(id)
			return records, err
		})
		if err != nil || !leaves {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return fmt.Errorf("%w: broker %d is leaving: %w", ErrNotCommitted, id, context.Cause(ctx))
		}
	}
}

// planUnregister plans that a broker is taken out. leaves says that it still has to hear of what is taken away from it; where nobody reports
// there is nobody to hear.
func (p *planner) planUnregister(id metadata.BrokerID) (records []metadata.Record, leaves bool, err error) {
	b, ok := p.img.Broker(id)
	if !ok {
		return nil, false, answer(ErrBrokerNotRegistered, "Broker ID %d is not currently registered.", id)
	}
	if held := p.held(id); held > 0 && !b.Fenced {
		return nil, false, answer(ErrInvalidRequest, "Broker %d is alive and holds %d replica(s). Drain it and reassign them, or stop it first.", id, held)
	}
	if !b.Fenced && p.handed != nil {
		records, err = p.planShutdown(id, b.Epoch)
		return records, true, err
	}
	records = p.planExpired([]metadata.BrokerID{id})
	if p.drained(id) {
		records = append(records, drainRecord(id, metadata.Setting{Key: drainKey}))
	}
	return append(records, metadata.BrokerRemoved{ID: id, Epoch: b.Epoch}), false, nil
}

// held counts the replicas of a broker.
func (p *planner) held(id metadata.BrokerID) int {
	n := 0
	for t := range p.img.Topics() {
		for _, part := range t.Partitions {
			if slices.Contains(part.Replicas, id) {
				n++
			}
		}
	}
	return n
}

// Feature is a feature that this version knows, with its levels; 0 is off.
type Feature struct {
	Name     string
	Min, Max int16
}

// GroupFeature is the feature of the consumer protocol (KIP-848): from level 1 on it is served.
const GroupFeature = "group.version"

// SupportedFeatures are the features that this version knows, by name.
func SupportedFeatures() []Feature {
	return []Feature{
		{Name: elrFeature, Min: 0, Max: 1}, {Name: GroupFeature, Min: 0, Max: 1}, {Name: metadata.LevelFeature, Min: 0, Max: metadata.MaxLevel},
	}
}

// FeatureChange is how a feature may change.
type FeatureChange int8

// The ways to change a feature, by Kafka's numbers.
const (
	Upgrade         FeatureChange = 1
	SafeDowngrade   FeatureChange = 2
	UnsafeDowngrade FeatureChange = 3
)

// FeatureUpdate asks for a level of a feature.
type FeatureUpdate struct {
	Name   string
	Level  int16
	Change FeatureChange
}

// UpdateFeaturesRequest asks for levels; all of them are set, or none.
type UpdateFeaturesRequest struct {
	Updates      []FeatureUpdate
	ValidateOnly bool
}

// UpdateFeatures sets levels of features.
func (c *Controller) UpdateFeatures(ctx context.Context, req UpdateFeaturesRequest) error {
	_, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) {
		records, err := p.planFeatures(req.Updates)
		if req.ValidateOnly {
			return nil, err
		}
		return records, err
	})
	return err
}

func (p *planner) planFeatures(updates []FeatureUpdate) ([]metadata.Record, error) {
	var records []metadata.Record
	seen := map[string]bool{}
	for _, u := range updates {
		if seen[u.Name] {
			return nil, answer(ErrInvalidRequest, "Feature %s appears more than once.", u.Name)
		}
		seen[u.Name] = true
		now := p.img.Feature(u.Name)
		if err := checkFeature(u, now); err != nil {
			return nil, err
		}
		if u.Level == now {
			continue
		}
		if why := p.lacking(u.Name, u.Level); why != "" && u.Level > now {
			return nil, answer(ErrFeatureUpdateFailed, "Invalid update version %d for feature %s. %s", u.Level, u.Name, why)
		}
		if u.Name == elrFeature && u.Level == 0 {
			cleared, err := p.withoutELR()
			if err != nil {
				return nil, err
			}
			records = append(records, cleared...)
		}
		records = append(records, metadata.FeatureLevel{Name: u.Name, Level: u.Level})
	}
	return records, nil
}

func checkFeature(u FeatureUpdate, now int16) error {
	fail := func(format string, args ...any) error {
		return answer(ErrFeatureUpdateFailed, "Invalid update version %d for feature %s. "+format, append([]any{u.Level, u.Name}, args...)...)
	}
	all := SupportedFeatures()
	i := slices.IndexFunc(all, func(f Feature) bool { return f.Name == u.Name })
	switch {
	case u.Change < Upgrade || u.Change > UnsafeDowngrade:
		return fail("The controller does not support the given upgrade type.")
	case i < 0:
		return fail("The controller does not support this feature.")
	case u.Level < 0:
		return fail("A feature version cannot be less than 0.")
	case u.Level < all[i].Min || u.Level > all[i].Max:
		return fail("The controller only supports versions %d-%d.", all[i].Min, all[i].Max)
	case u.Level < now && u.Name == metadata.LevelFeature:
		return fail("Records of version %d may be in the metadata log, so it cannot be lowered.", now)
	case u.Level < now && u.Change == Upgrade:
		return fail("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case u.Level > now && u.Change != Upgrade:
		return fail("Can't downgrade to a newer version.")
	}
	return nil
}

// withoutELR empties the eligible sets, unless one is all that a partition has.
func (p *planner) withoutELR() ([]metadata.Record, error) {
	var records []metadata.Record
	for t := range p.img.Topics() {
		for i, part := range t.Partitions {
			if len(part.ELR) > 0 && len(part.ISR) == 0 {
				return nil, answer(ErrFeatureUpdateFailed, "The eligible leader replicas of %s-%d are all that it has.", t.Name, i)
			}
			if len(part.ELR) > 0 {
				records = append(records, p.clearELR(t, i))
			}
		}
	}
	return records, nil
}

func (p *planner) clearELR(t *metadata.Topic, i int) metadata.Record {
	return metadata.PartitionChanged{
		TopicID: t.ID, Partition: int32(i), PartitionEpoch: t.Partitions[i].PartitionEpoch, ELR: &[]metadata.BrokerID{},
	}
}

// clearedELR are the records that come before a change of min.insync.replicas: the replicas of an eligible set may miss what
// will be committed under a lower value (KIP-966). Where nobody is in sync nothing is committed, and the set stays.
func (p *planner) clearedELR(res metadata.Resource, changes []metadata.Setting) []metadata.Record {
	named := func(s metadata.Setting) bool { return s.Key == minInsyncKey }
	if !slices.ContainsFunc(changes, named) {
		return nil
	}
	if p.cleared == nil {
		p.cleared = map[PartitionRef]bool{}
	}
	var records []metadata.Record
	for t := range p.img.Topics() {
		_, own := p.img.Configs(metadata.ResourceTopic, t.Name)[minInsyncKey]
		if res.Kind == metadata.ResourceTopic && res.Name != t.Name || res.Kind == metadata.ResourceBroker && own {
			continue
		}
		for i, part := range t.Partitions {
			ref := PartitionRef{t.ID, int32(i)}
			if len(part.ELR) > 0 && len(part.ISR) > 0 && !p.cleared[ref] {
				p.cleared[ref] = true
				records = append(records, p.clearELR(t, i))
			}
		}
	}
	return records
}

const minInsyncKey = "min.insync.replicas"
