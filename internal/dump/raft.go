package dump

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/quorum"
)

// inspection is the metadata log of a directory, read once.
type inspection struct {
	in  *quorum.Inspection
	err error
}

// inspect reads the metadata log in dir.
func (d *Dump) inspect(dir string) *inspection {
	if x, ok := d.raft[dir]; ok {
		return x
	}
	x := &inspection{}
	x.in, x.err = quorum.Inspect(d.o.FS, dir)
	d.raft[dir] = x
	return x
}

// closeRaft closes what inspect opened.
func (d *Dump) closeRaft() {
	for _, x := range d.raft {
		if x.in != nil {
			_ = x.in.Close()
		}
	}
}

// placedTopic is what the metadata says about a topic.
type placedTopic struct {
	name string
	// replicas are the brokers of each partition.
	replicas [][]metadata.BrokerID
}

func (t *placedTopic) add(partitions []metadata.Partition) {
	for i := range partitions {
		t.replicas = append(t.replicas, partitions[i].Replicas)
	}
}

// learnTopics takes the topics, their ids and where their partitions lie from the metadata log of a data directory.
func (d *Dump) learnTopics(dir string) {
	d.placed = nil
	if _, err := d.o.FS.Stat(filepath.Join(dir, quorum.StoreFile)); err != nil {
		return
	}
	x := d.inspect(dir)
	if x.err != nil {
		return
	}
	placed := map[[16]byte]*placedTopic{}
	var index uint64
	for _, s := range x.in.Snapshots {
		if s.Image == nil {
			continue
		}
		for t := range s.Image.Topics() {
			topic := &placedTopic{name: t.Name}
			for _, p := range t.Partitions {
				topic.replicas = append(topic.replicas, p.Replicas)
			}
			placed[t.ID] = topic
		}
		index = s.Index
		break
	}
	for e := range x.in.Entries() {
		if e.Err != nil || e.Command == nil || e.Index <= index {
			continue
		}
		for _, g := range e.Command.Groups {
			for _, r := range g.Records {
				followPlacement(placed, r)
			}
		}
	}
	d.placed, d.topics = placed, map[string][16]byte{}
	for id, t := range placed {
		d.topics[t.name] = id
	}
}

// followPlacement follows a record of the metadata log.
func followPlacement(placed map[[16]byte]*placedTopic, r metadata.Record) {
	switch r := r.(type) {
	case metadata.TopicCreated:
		for _, t := range placed {
			if t.name == r.Name { // was refused
				return
			}
		}
		t := &placedTopic{name: r.Name}
		t.add(r.Partitions)
		placed[r.ID] = t
	case metadata.PartitionsAdded:
		if t := placed[r.TopicID]; t != nil && int(r.First) == len(t.replicas) {
			t.add(r.Partitions)
		}
	case metadata.PartitionChanged:
		if t := placed[r.TopicID]; t != nil && r.Assignment != nil && r.Partition >= 0 && int(r.Partition) < len(t.replicas) {
			t.replicas[r.Partition] = r.Assignment.Replicas
		}
	case metadata.TopicDeleted:
		delete(placed, r.ID)
	}
}

// raft dumps the store of the metadata log or one of its snapshots.
func (f *file) raft() {
	x := f.d.inspect(filepath.Dir(f.path))
	if f.name.typ == TypeRaftSnap {
		f.raftSnapshot(x)
		return
	}
	if x.err != nil {
		if errors.Is(x.err, metadata.ErrNewerVersion) {
			f.unsupported(-1, -1, "%v", x.err)
			return
		}
		f.damage(-1, -1, "%v", x.err)
		return
	}
	if x.in.Running {
		f.note(-1, -1, "a server has it open: a copy was read")
	}
	f.entry("state", Field{"term", x.in.Term}, Field{"vote_term", x.in.VoteTerm}, Field{"voted_for", x.in.VotedFor}, Field{"first", x.in.First}, Field{"last", x.in.Last})
	var term uint64
	for e := range x.in.Entries() {
		if f.d.stopped() {
			return
		}
		f.raftEntry(e)
		if e.Err == nil && e.Term < term {
			f.damage(-1, -1, "entry %d has term %d, the one before it %d", e.Index, e.Term, term)
		}
		term = max(term, e.Term)
	}
}

func (f *file) raftEntry(e quorum.LogEntry) {
	fields := []Field{{"index", e.Index}, {"term", e.Term}, {"type", e.Type}, {"size", e.Size}}
	if e.Members != "" {
		fields = append(fields, Field{"members", e.Members})
	}
	if c := e.Command; c != nil {
		records := []any{}
		n := 0
		for _, g := range c.Groups {
			n += len(g.Records)
			for _, r := range g.Records {
				if f.d.o.Raft && f.shown {
					records = append(records, describe(r))
				}
			}
		}
		fields = append(fields, Field{"broker", c.Session.Broker}, Field{"sequence", c.Session.Sequence})
		if f.d.o.Raft {
			fields = append(fields, Field{"records", records})
		} else {
			fields = append(fields, Field{"records", n})
		}
	}
	f.entry("entry", fields...)
	switch {
	case e.Err == nil:
	case errors.Is(e.Err, metadata.ErrNewerVersion):
		f.unsupported(-1, -1, "entry %d: %v", e.Index, e.Err)
	default:
		f.damage(-1, -1, "entry %d: %v", e.Index, e.Err)
	}
}

func (f *file) raftSnapshot(x *inspection) {
	if x.in == nil {
		if errors.Is(x.err, fs.ErrNotExist) || x.err != nil {
			f.note(-1, -1, "not looked at, the store beside it cannot be opened: %v", x.err)
		}
		return
	}
	for _, s := range x.in.Snapshots {
		if s.Name != lastElement(f.path) {
			continue
		}
		switch {
		case errors.Is(s.Err, metadata.ErrNewerVersion):
			f.unsupported(-1, -1, "%v", s.Err)
		case s.Err != nil:
			f.damage(-1, -1, "%v", s.Err)
		default:
			f.entry("image", Field{"index", s.Index}, Field{"term", s.Term}, Field{"cluster_id", s.Image.ClusterID()},
				Field{"topics", s.Image.TopicCount()}, Field{"partitions", s.Image.PartitionCount()}, Field{"brokers", len(s.Image.Brokers())})
			f.image(s.Image)
		}
		return
	}
	f.note(-1, -1, "no snapshot by its name: not looked at")
}

// image shows what a snapshot holds, with --decode raft.
func (f *file) image(img *metadata.Image) {
	if !f.d.o.Raft {
		return
	}
	for _, b := range img.Brokers() {
		f.entry("broker", Field{"id", b.ID}, Field{"epoch", b.Epoch}, Field{"fenced", b.Fenced})
	}
	for t := range img.Topics() {
		f.entry("topic", Field{"name", t.Name}, Field{"topic_id", t.ID.String()}, Field{"partitions", len(t.Partitions)})
	}
	for r, settings := range img.AllConfigs() {
		f.entry("config", Field{"resource", fmt.Sprintf("%v %s", r.Kind, r.Name)}, Field{"settings", settings})
	}
}

// describe tells what a record of the metadata log says.
func describe(r metadata.Record) *Entry {
	e := &Entry{}
	kind := func(name string, fields ...Field) *Entry {
		e.Fields = append([]Field{{"record", name}}, fields...)
		return e
	}
	switch r := r.(type) {
	case metadata.ClusterStarted:
		return kind("cluster started", Field{"cluster_id", r.ClusterID}, Field{"voters", len(r.Voters)})
	case metadata.FeatureLevel:
		return kind("feature level", Field{"name", r.Name}, Field{"level", r.Level})
	case metadata.BrokerRegistered:
		listeners := []string{}
		for _, l := range r.Listeners {
			listeners = append(listeners, fmt.Sprintf("%s://%s:%d", l.Name, l.Host, l.Port))
		}
		return kind("broker registered", Field{"broker", r.ID}, Field{"incarnation", base64.RawURLEncoding.EncodeToString(r.Incarnation[:])}, Field{"listeners", listeners}, Field{"rack", r.Rack})
	case metadata.BrokerFenced:
		return kind("broker fenced", Field{"broker", r.ID}, Field{"epoch", r.Epoch}, Field{"fenced", r.Fenced}, Field{"shutting_down", r.ShuttingDown})
	case metadata.BrokerRemoved:
		return kind("broker removed", Field{"broker", r.ID}, Field{"epoch", r.Epoch})
	case metadata.TopicCreated:
		return kind("topic created", Field{"name", r.Name}, Field{"topic_id", r.ID.String()}, Field{"partitions", len(r.Partitions)}, Field{"configs", settings(r.Configs)})
	case metadata.TopicDeleted:
		return kind("topic deleted", Field{"topic_id", r.ID.String()})
	case metadata.PartitionsAdded:
		return kind("partitions added", Field{"topic_id", r.TopicID.String()}, Field{"first", r.First}, Field{"count", len(r.Partitions)})
	case metadata.PartitionChanged:
		return kind("partition changed", partitionChange(r)...)
	case metadata.ConfigChanged:
		return kind("config changed", Field{"resource", fmt.Sprintf("%v %s", r.Resource.Kind, r.Resource.Name)}, Field{"settings", settings(r.Settings)})
	case metadata.ProducerIDsGranted:
		return kind("producer ids granted", Field{"broker", r.Broker}, Field{"count", r.Count})
	}
	return kind(fmt.Sprintf("kind %d", r.Kind()))
}

func partitionChange(r metadata.PartitionChanged) []Field {
	fields := []Field{{"topic_id", r.TopicID.String()}, {"partition", r.Partition}, {"partition_epoch", r.PartitionEpoch}}
	if r.Leader != nil {
		fields = append(fields, Field{"leader", *r.Leader})
	}
	if r.NewLeaderEpoch {
		fields = append(fields, Field{"new_leader_epoch", true})
	}
	if r.ISR != nil {
		fields = append(fields, Field{"isr", *r.ISR})
	}
	if r.ELR != nil {
		fields = append(fields, Field{"elr", *r.ELR})
	}
	if r.Assignment != nil {
		fields = append(fields, Field{"replicas", r.Assignment.Replicas})
	}
	if r.Unclean != nil {
		fields = append(fields, Field{"unclean", *r.Unclean})
	}
	return fields
}

func settings(all []metadata.Setting) []string {
	list := []string{}
	for _, s := range all {
		if s.Value == nil {
			list = append(list, "-"+s.Key)
		} else {
			list = append(list, s.Key+"="+*s.Value)
		}
	}
	return list
}
