package metadata

import "fmt"

// recordVersion is the version of every record's body; they go up one by one when fields are added.
const recordVersion = 1

func (c ClusterStarted) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = appendText(w, c.ClusterID)
	return appendVoters(w, c.Voters)
}

func (f FeatureLevel) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = appendText(w, f.Name)
	return appendInt(w, int64(f.Level))
}

func (b BrokerRegistered) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = appendInt(w, int64(b.ID))
	w = append(w, b.Incarnation[:]...)
	w = appendListeners(w, b.Listeners)
	w = appendText(w, b.Rack)
	return appendDirectories(w, b.Directories)
}

func (b BrokerFenced) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = appendInt(w, int64(b.ID))
	w = appendInt(w, b.Epoch)
	w = appendBool(w, b.Fenced)
	return appendBool(w, b.ShuttingDown)
}

func (b BrokerRemoved) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = appendInt(w, int64(b.ID))
	return appendInt(w, b.Epoch)
}

func (t TopicCreated) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = appendText(w, t.Name)
	w = append(w, t.ID[:]...)
	w = appendPartitions(w, t.Partitions)
	return appendSettings(w, t.Configs)
}

func (t TopicDeleted) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	return append(w, t.ID[:]...)
}

func (p PartitionsAdded) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = append(w, p.TopicID[:]...)
	w = appendInt(w, int64(p.First))
	return appendPartitions(w, p.Partitions)
}

// The fields of a PartitionChanged that are there, one bit each.
const (
	hasLeader = 1 << iota
	hasNewEpoch
	hasISR
	hasELR
	hasAssignment
	hasUnclean
	isUnclean
)

func (p PartitionChanged) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = append(w, p.TopicID[:]...)
	w = appendInt(w, int64(p.Partition))
	w = appendInt(w, int64(p.PartitionEpoch))
	var has byte
	set := func(bit byte, there bool) {
		if there {
			has |= bit
		}
	}
	set(hasLeader, p.Leader != nil)
	set(hasNewEpoch, p.NewLeaderEpoch)
	set(hasISR, p.ISR != nil)
	set(hasELR, p.ELR != nil)
	set(hasAssignment, p.Assignment != nil)
	set(hasUnclean, p.Unclean != nil)
	set(isUnclean, p.Unclean != nil && *p.Unclean)
	w = append(w, has)
	if p.Leader != nil {
		w = appendInt(w, int64(*p.Leader))
	}
	if p.ISR != nil {
		w = appendBrokers(w, *p.ISR)
	}
	if p.ELR != nil {
		w = appendBrokers(w, *p.ELR)
	}
	if a := p.Assignment; a != nil {
		w = appendBrokers(w, a.Replicas)
		w = appendBrokers(w, a.Adding)
		w = appendBrokers(w, a.Removing)
		w = appendDirectories(w, a.Directories)
	}
	return w
}

func (c ConfigChanged) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = append(w, byte(c.Resource.Kind))
	w = appendText(w, c.Resource.Name)
	return appendSettings(w, c.Settings)
}

func (p ProducerIDsGranted) appendBody(w []byte) []byte {
	w = append(w, recordVersion)
	w = appendInt(w, int64(p.Broker))
	w = appendInt(w, p.Epoch)
	return appendInt(w, int64(p.Count))
}

func (u Unknown) appendBody(w []byte) []byte { return append(w, u.Body...) }

func appendVoters(w []byte, voters []Voter) []byte {
	w = appendUint(w, uint64(len(voters)))
	for _, v := range voters {
		w = appendInt(w, int64(v.ID))
		w = append(w, v.Directory[:]...)
	}
	return w
}

func appendListeners(w []byte, listeners []Endpoint) []byte {
	w = appendUint(w, uint64(len(listeners)))
	for _, l := range listeners {
		w = appendText(w, l.Name)
		w = appendText(w, l.Host)
		w = appendUint(w, uint64(l.Port))
		w = appendInt(w, int64(l.Protocol))
	}
	return w
}

func appendSettings(w []byte, settings []Setting) []byte {
	w = appendUint(w, uint64(len(settings)))
	for _, s := range settings {
		w = appendText(w, s.Key)
		w = appendBool(w, s.Value != nil)
		if s.Value != nil {
			w = appendText(w, *s.Value)
		}
	}
	return w
}

func appendPartitions(w []byte, parts []Partition) []byte {
	w = appendUint(w, uint64(len(parts)))
	for i := range parts {
		w = appendPartition(w, &parts[i])
	}
	return w
}

func appendPartition(w []byte, p *Partition) []byte {
	w = appendBrokers(w, p.Replicas)
	w = appendBrokers(w, p.Adding)
	w = appendBrokers(w, p.Removing)
	w = appendDirectories(w, p.Directories)
	w = appendBrokers(w, p.ISR)
	w = appendBrokers(w, p.ELR)
	w = appendInt(w, int64(p.Leader))
	w = appendInt(w, int64(p.LeaderEpoch))
	w = appendInt(w, int64(p.PartitionEpoch))
	return appendBool(w, p.Unclean)
}

// decodeRecord reads one record with its kind and length.
func decodeRecord(r *reader) (Record, error) {
	kind := Kind(r.uint())
	body := r.take(r.count(1))
	if r.err != nil {
		return nil, r.err
	}
	read, ok := decoders[kind]
	if !ok {
		return Unknown{Number: kind, Body: append([]byte(nil), body...)}, nil
	}
	b := &reader{b: body}
	if v := b.byte(); v > recordVersion {
		return nil, fmt.Errorf("%w: %s, version %d, this program knows %d", ErrNewerVersion, kind, v, recordVersion)
	}
	rec := read(b)
	if err := b.end(); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return rec, nil
}

var decoders = map[Kind]func(*reader) Record{
	KindClusterStarted: func(r *reader) Record { return ClusterStarted{ClusterID: r.text(), Voters: readVoters(r)} },
	KindFeatureLevel:   func(r *reader) Record { return FeatureLevel{Name: r.text(), Level: r.int16()} },
	KindBrokerRegistered: func(r *reader) Record {
		return BrokerRegistered{
			ID: r.int32(), Incarnation: r.id(), Listeners: readListeners(r), Rack: r.text(), Directories: r.directories(),
		}
	},
	KindBrokerFenced: func(r *reader) Record {
		return BrokerFenced{ID: r.int32(), Epoch: r.int(), Fenced: r.bool(), ShuttingDown: r.bool()}
	},
	KindBrokerRemoved: func(r *reader) Record { return BrokerRemoved{ID: r.int32(), Epoch: r.int()} },
	KindTopicCreated: func(r *reader) Record {
		return TopicCreated{Name: r.text(), ID: r.id(), Partitions: readPartitions(r), Configs: readSettings(r)}
	},
	KindTopicDeleted: func(r *reader) Record { return TopicDeleted{ID: r.id()} },
	KindPartitionsAdded: func(r *reader) Record {
		return PartitionsAdded{TopicID: r.id(), First: r.int32(), Partitions: readPartitions(r)}
	},
	KindPartitionChanged: func(r *reader) Record { return readPartitionChanged(r) },
	KindMemberChanged:    func(r *reader) Record { return MemberChanged(readMember(r)) },
	KindChainCheckpoint:  func(r *reader) Record { return readChainCheckpoint(r) },
	KindConfigChanged: func(r *reader) Record {
		return ConfigChanged{Resource: Resource{ResourceKind(r.byte()), r.text()}, Settings: readSettings(r)}
	},
	KindProducerIDsGranted: func(r *reader) Record {
		return ProducerIDsGranted{Broker: r.int32(), Epoch: r.int(), Count: r.int32()}
	},
	KindShardAssigned: func(r *reader) Record { return ShardAssigned{Shard: r.int32(), Epoch: r.int(), Owner: r.int32()} },
	KindOffsetsCommitted: func(r *reader) Record {
		return OffsetsCommitted{Shard: r.int32(), ShardEpoch: r.int(), Group: r.text(), Offsets: readCommits(r)}
	},
	KindOffsetsRemoved: func(r *reader) Record {
		return OffsetsRemoved{Shard: r.int32(), ShardEpoch: r.int(), Group: r.text(), Partitions: readGroupPartitions(r)}
	},
	KindGroupChanged: func(r *reader) Record {
		return GroupChanged{Shard: r.int32(), ShardEpoch: r.int(), Group: r.text(), Entries: readEntries(r)}
	},
	KindGroupRemoved: func(r *reader) Record { return GroupRemoved{Shard: r.int32(), ShardEpoch: r.int(), Group: r.text()} },
}

func readPartitionChanged(r *reader) PartitionChanged {
	p := PartitionChanged{TopicID: r.id(), Partition: r.int32(), PartitionEpoch: r.int32()}
	has := r.byte()
	p.NewLeaderEpoch = has&hasNewEpoch != 0
	if has&hasLeader != 0 {
		p.Leader = new(r.int32())
	}
	if has&hasISR != 0 {
		p.ISR = new(r.brokers())
	}
	if has&hasELR != 0 {
		p.ELR = new(r.brokers())
	}
	if has&hasAssignment != 0 {
		p.Assignment = &Assignment{r.brokers(), r.brokers(), r.brokers(), r.directories()}
	}
	if has&hasUnclean != 0 {
		p.Unclean = new(has&isUnclean != 0)
	}
	if has&^(isUnclean<<1-1) != 0 {
		r.fail("field bits %#x", has)
	}
	return p
}

func readVoters(r *reader) []Voter {
	n := r.count(17)
	if n == 0 {
		return nil
	}
	voters := make([]Voter, n)
	for i := range voters {
		voters[i] = Voter{ID: r.int32(), Directory: r.id()}
	}
	return voters
}

func readListeners(r *reader) []Endpoint {
	n := r.count(4)
	if n == 0 {
		return nil
	}
	listeners := make([]Endpoint, n)
	for i := range listeners {
		l := &listeners[i]
		l.Name, l.Host = r.text(), r.text()
		port := r.uint()
		if port > 65535 {
			r.fail("port %d", port)
		}
		l.Port, l.Protocol = uint16(port), r.int16()
	}
	return listeners
}

func readSettings(r *reader) []Setting {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	settings := make([]Setting, n)
	for i := range settings {
		settings[i].Key = r.text()
		if r.bool() {
			settings[i].Value = new(r.text())
		}
	}
	return settings
}

func readPartitions(r *reader) []Partition {
	n := r.count(10)
	if n == 0 {
		return nil
	}
	parts := make([]Partition, n)
	for i := range parts {
		parts[i] = readPartition(r)
	}
	return parts
}

func readPartition(r *reader) Partition {
	return Partition{
		Replicas: r.brokers(), Adding: r.brokers(), Removing: r.brokers(), Directories: r.directories(),
		ISR: r.brokers(), ELR: r.brokers(), Leader: r.int32(), LeaderEpoch: r.int32(), PartitionEpoch: r.int32(), Unclean: r.bool(),
	}
}
