package controller

import (
	"math"

	"github.com/keeplog/keeplog/metadata"
)

// metadataTopic is the name that Kafka keeps for its own metadata log.
const metadataTopic = "__cluster_metadata"

// planCreate plans new topics. records[i] belongs to the answer at index of[i].
func (p *planner) planCreate(req CreateTopicsRequest) (answers []CreatedTopic, records []metadata.Record, of []int) {
	answers = make([]CreatedTopic, 0, len(req.Topics))
	times := map[string]int{}
	wanted := 0
	for i := range req.Topics {
		times[req.Topics[i].Name]++
		wanted += p.partitionsWanted(&req.Topics[i])
	}
	if wanted > maxPartitions {
		for name := range once(req.Topics, func(t CreateTopic) string { return t.Name }) {
			answers = append(answers, CreatedTopic{Name: name, Err: answer(ErrPolicyViolation, "Excessively large number of partitions per request.")})
		}
		return answers, nil, nil
	}
	taken := newCollisions(p.img)
	for name, t := range once(req.Topics, func(t CreateTopic) string { return t.Name }) {
		a := CreatedTopic{Name: name}
		var rec metadata.TopicCreated
		switch {
		case name == metadataTopic:
			a.Err = answer(ErrInvalidRequest, "Creation of internal topic %s is prohibited.", name)
		case times[name] > 1:
			a.Err = answer(ErrInvalidRequest, "Duplicate topic name.")
		default:
			rec, a.Err = p.createOne(&t, taken)
		}
		if a.Err == nil {
			a.Partitions, a.Replicas = int32(len(rec.Partitions)), int16(len(rec.Partitions[0].Replicas))
			a.Configs = settingsMap(rec.Configs)
			if !req.ValidateOnly {
				a.ID = rec.ID
				records, of = append(records, rec), append(of, len(answers))
			}
		}
		answers = append(answers, a)
	}
	return answers, records, of
}

// once goes through the items, of those with the same key only the first.
func once[T any, K comparable](items []T, key func(T) K) func(func(K, T) bool) {
	return func(yield func(K, T) bool) {
		seen := map[K]bool{}
		for _, it := range items {
			k := key(it)
			if !seen[k] {
				seen[k] = true
				if !yield(k, it) {
					return
				}
			}
		}
	}
}

// partitionsWanted counts, for the limit of a request, what a topic asks for.
func (p *planner) partitionsWanted(t *CreateTopic) int {
	switch {
	case len(t.Assignment) > 0:
		return len(t.Assignment)
	case t.Partitions == -1:
		return p.static.Int("num.partitions")
	}
	return max(0, int(t.Partitions))
}

func (p *planner) createOne(t *CreateTopic, taken collisions) (metadata.TopicCreated, error) {
	rec := metadata.TopicCreated{Name: t.Name}
	if err := CheckTopicName(t.Name); err != nil {
		return rec, err
	}
	if err := taken.check(t.Name); err != nil {
		return rec, err
	}
	if _, ok := p.img.TopicByName(t.Name); ok {
		return rec, answer(ErrTopicExists, "Topic '%s' already exists.", t.Name)
	}
	own, err := p.newSettings(t.Configs)
	if err != nil {
		return rec, err
	}
	if len(t.Assignment) > 0 {
		rec.Partitions, err = p.assigned(t)
	} else {
		rec.Partitions, err = p.placed(t, own)
	}
	if err != nil {
		return rec, err
	}
	rec.Configs, rec.ID = sortedSettings(own), p.newID()
	return rec, nil
}

// assigned takes the partitions from a manual assignment.
func (p *planner) assigned(t *CreateTopic) ([]metadata.Partition, error) {
	const manual = "A manual partition assignment was specified, but "
	switch {
	case t.Replicas != -1:
		return nil, answer(ErrInvalidRequest, manual+"replication factor was not set to -1.")
	case t.Partitions != -1:
		return nil, answer(ErrInvalidRequest, manual+"numPartitions was not set to -1.")
	}
	parts := make([]metadata.Partition, len(t.Assignment))
	filled := make([]bool, len(parts))
	size := 0
	for _, a := range t.Assignment {
		if a.Partition >= 0 && int(a.Partition) < len(parts) && filled[a.Partition] {
			return nil, answer(ErrInvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if err := p.checkReplicas(a.Brokers, size); err != nil {
			return nil, err
		}
		size = len(a.Brokers)
		part := p.newPartition(a.Brokers)
		if len(part.ISR) == 0 {
			return nil, answer(ErrInvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		if a.Partition >= 0 && int(a.Partition) < len(parts) {
			parts[a.Partition], filled[a.Partition] = part, true
		}
	}
	for _, ok := range filled {
		if !ok {
			return nil, answer(ErrInvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
	}
	return parts, nil
}

// placed lets the planner choose the brokers.
func (p *planner) placed(t *CreateTopic, own map[string]string) ([]metadata.Partition, error) {
	switch {
	case t.Replicas < -1 || t.Replicas == 0:
		return nil, answer(ErrInvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case t.Partitions < -1 || t.Partitions == 0:
		return nil, answer(ErrInvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	count, replicas := int(t.Partitions), int(t.Replicas)
	if count == -1 {
		count = p.static.Int("num.partitions")
	}
	if replicas == -1 {
		replicas = min(p.defaultReplicas(), math.MaxInt16)
	}
	pl := p.newPlacement()
	if err := pl.check(replicas, p.topicLayers(own, replicas).Effective().MinInsync(replicas)); err != nil {
		return nil, err
	}
	parts := make([]metadata.Partition, count)
	for i := range parts {
		parts[i] = p.newPartition(pl.take(replicas))
	}
	return parts, nil
}

// planDelete plans the end of topics.
func (p *planner) planDelete(refs []TopicRef) (answers []DeletedTopic, records []metadata.Record, of []int) {
	names, ids := map[string]int{}, map[metadata.TopicID]int{}
	for _, r := range refs {
		if r.Name != "" {
			names[r.Name]++
		} else {
			ids[r.ID]++
		}
	}
	deleted := map[metadata.TopicID]bool{}
	for r := range once(refs, func(r TopicRef) TopicRef { return r }) {
		a := p.deleteOne(r, names, ids)
		if a.Err == nil && !deleted[a.ID] {
			deleted[a.ID] = true
			records, of = append(records, metadata.TopicDeleted{ID: a.ID}), append(of, len(answers))
		}
		answers = append(answers, a)
	}
	return keepAnswered(answers, records, of)
}

// keepAnswered drops the answers of ids that a name of the same request has answered for.
func keepAnswered(answers []DeletedTopic, records []metadata.Record, of []int) ([]DeletedTopic, []metadata.Record, []int) {
	kept := make([]DeletedTopic, 0, len(answers))
	at := make([]int, len(answers))
	for i, a := range answers {
		at[i] = len(kept)
		if a.Err != errAnsweredByName {
			kept = append(kept, a)
		}
	}
	for i := range of {
		of[i] = at[of[i]]
	}
	return kept, records, of
}

// errAnsweredByName marks an id whose topic is named in the same request, too.
var errAnsweredByName = &Answer{Kind: ErrInvalidRequest}

func (p *planner) deleteOne(r TopicRef, names map[string]int, ids map[metadata.TopicID]int) DeletedTopic {
	a := DeletedTopic{Name: r.Name, ID: r.ID}
	switch {
	case r.Name != "" && !r.ID.IsZero():
		a.Err = answer(ErrInvalidRequest, "You may not specify both topic name and topic id.")
		return a
	case r.Name == "" && r.ID.IsZero():
		a.Err = answer(ErrInvalidRequest, "Neither topic name nor id were specified.")
		return a
	case r.Name != "" && names[r.Name] > 1:
		a.Err = answer(ErrInvalidRequest, "Duplicate topic name.")
		return a
	case r.Name == "" && ids[r.ID] > 1:
		a.Err = answer(ErrInvalidRequest, "Duplicate topic id.")
		return a
	}
	if r.Name != "" {
		t, ok := p.img.TopicByName(r.Name)
		switch {
		case !ok:
			a.Err = answer(ErrUnknownTopic, "This server does not host this topic-partition.")
		case ids[t.ID] > 0:
			a.Err = answer(ErrInvalidRequest, "The provided topic name maps to an ID that was already supplied.")
		default:
			a.ID = t.ID
		}
		return a
	}
	t, ok := p.img.TopicByID(r.ID)
	switch {
	case !ok:
		a.Err = answer(ErrUnknownTopicID, "This server does not host this topic ID.")
	case names[t.Name] > 0:
		a.Err = errAnsweredByName
	default:
		a.Name = t.Name
	}
	return a
}

// planGrow plans more partitions.
func (p *planner) planGrow(req CreatePartitionsRequest) (answers []GrownTopic, records []metadata.Record, of []int) {
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Name]++
	}
	left := maxPartitions
	for name, t := range once(req.Topics, func(t GrowTopic) string { return t.Name }) {
		a := GrownTopic{Name: name}
		var rec metadata.PartitionsAdded
		if times[name] > 1 {
			a.Err = answer(ErrInvalidRequest, "Duplicate topic name.")
		} else {
			rec, a.Err = p.growOne(&t, &left)
		}
		if a.Err == nil && !req.ValidateOnly {
			records, of = append(records, rec), append(of, len(answers))
		}
		answers = append(answers, a)
	}
	return answers, records, of
}

func (p *planner) growOne(t *GrowTopic, left *int) (metadata.PartitionsAdded, error) {
	topic, ok := p.img.TopicByName(t.Name)
	if !ok {
		return metadata.PartitionsAdded{}, &Answer{Kind: ErrUnknownTopic}
	}
	have := len(topic.Partitions)
	rec := metadata.PartitionsAdded{TopicID: topic.ID, First: int32(have)}
	more := int(t.Count) - have
	switch {
	case more == 0:
		return rec, answer(ErrInvalidPartitions, "Topic already has %d partition(s).", have)
	case more < 0:
		return rec, answer(ErrInvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", t.Name, have, t.Count)
	case more > *left:
		return rec, answer(ErrPolicyViolation, "Excessively large number of additional partitions per request.")
	case len(t.Assignments) > 0 && len(t.Assignments) != more:
		return rec, answer(ErrInvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", more, len(t.Assignments))
	}
	*left -= more
	replicas := topic.ReplicationFactor()
	rec.Partitions = make([]metadata.Partition, more)
	if len(t.Assignments) > 0 {
		for i, a := range t.Assignments {
			if err := p.checkReplicas(a, replicas); err != nil {
				return rec, err
			}
			if rec.Partitions[i] = p.newPartition(a); len(rec.Partitions[i].ISR) == 0 {
				return rec, answer(ErrInvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", have+i)
			}
		}
		return rec, nil
	}
	pl := p.newPlacement()
	own := p.img.Configs(metadata.ResourceTopic, topic.Name)
	if err := pl.check(replicas, p.topicLayers(own, replicas).Effective().MinInsync(replicas)); err != nil {
		return rec, err
	}
	for i := range rec.Partitions {
		rec.Partitions[i] = p.newPartition(pl.take(replicas))
	}
	return rec, nil
}
