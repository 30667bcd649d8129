package dump

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// missingPartition is a partition that something in the data directory names and that has no directory.
type missingPartition struct {
	topic     string
	partition int32
	severity  Severity
	// said is what names it.
	said        string
	first, last record.Offset
}

// presence is what stands in a data directory at the moment.
type presence struct {
	names  map[string]bool  // directories of partitions in use: "topic partition"
	left   map[string]bool  // those that were renamed, on their way out
	ids    map[markKey]bool // by topic id
	copies map[markKey]bool // those that a move has begun, by topic id
	blind  map[int32]bool   // partition numbers of directories whose topic id cannot be read
}

func partitionKey(topic string, partition int32) string {
	return topic + " " + decimal(int64(partition))
}

func (d *Dump) presence(dir string) (presence, error) {
	at := presence{names: map[string]bool{}, left: map[string]bool{}, ids: map[markKey]bool{}, copies: map[markKey]bool{}, blind: map[int32]bool{}}
	list, err := d.o.FS.ReadDir(dir)
	if err != nil {
		return at, err
	}
	for _, e := range list {
		topic, partition, state, ok := partitionName(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		if state != "" {
			at.left[partitionKey(topic, partition)] = true
			if id, err := d.topicID(filepath.Join(dir, e.Name(), "partition.metadata")); err == nil && state == "future" {
				at.copies[markKey{id, partition}] = true
			}
			continue
		}
		at.names[partitionKey(topic, partition)] = true
		if id, err := d.topicID(filepath.Join(dir, e.Name(), "partition.metadata")); err == nil {
			at.ids[markKey{id, partition}] = true
		} else {
			at.blind[partition] = true
		}
	}
	return at, nil
}

// missingPartitions reports the partitions of a data directory that are gone as a whole. A mark is freed, durably, before its partition's
// directory is renamed, and made after it is there: marks that are in use before and after the directory is listed say so on a running server too.
func (d *Dump) missingPartitions(dir string, data *dataDir) {
	at, err := d.presence(dir)
	if err != nil {
		return
	}
	gone := d.missingMarked(dir, data, at)
	told := map[string]bool{}
	for _, m := range gone {
		told[partitionKey(m.topic, m.partition)] = true
	}
	for _, more := range [][]missingPartition{d.missingPoints(data, at), d.missingPlaced(dir, data, at)} {
		for _, m := range more {
			if key := partitionKey(m.topic, m.partition); !told[key] {
				told[key] = true
				gone = append(gone, m)
			}
		}
	}
	slices.SortFunc(gone, func(a, b missingPartition) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), int(a.partition)-int(b.partition))
	})
	for _, m := range gone {
		p := &Problem{
			Severity: m.severity, File: filepath.Join(dir, m.topic+"-"+decimal(int64(m.partition))), Position: -1, End: -1, First: m.first, Last: m.last,
			Text: "the partition's directory is missing; " + m.said,
		}
		if m.severity == Note {
			d.total.Notes++
		} else {
			d.total.Damage++
			p.Hint = "put it back from a copy while the server is stopped"
			if data.own {
				p.Hint += "; without one, the next start makes it anew and goes on above the lost offsets"
			}
		}
		d.put(p)
	}
}

// missingMarked are the partitions that keeplog-marks promises.
func (d *Dump) missingMarked(dir string, data *dataDir, at presence) []missingPartition {
	if !data.own || data.marks == nil {
		return nil
	}
	var now *markTable
	var gone []missingPartition
	for key, slot := range data.marks.slots {
		topic, deleted := base64.RawURLEncoding.EncodeToString(key.topic[:]), false
		if d.placed != nil {
			if t := d.placed[key.topic]; t != nil {
				topic = t.name
			} else {
				deleted = true
			}
		}
		if slot.offset < slot.segment || key.partition < 0 { // told with the file
			continue
		}
		if slot.future || at.copies[key] { // a start goes on with it, or drops its mark
			continue
		}
		if deleted || at.ids[key] || at.names[partitionKey(topic, key.partition)] || d.placed == nil && at.blind[key.partition] {
			continue
		}
		if now == nil {
			if now = d.readMarks(filepath.Join(dir, "keeplog-marks")); now == nil {
				return nil
			}
		}
		if _, still := now.slots[key]; !still {
			continue
		}
		m := missingPartition{topic: topic, partition: key.partition, severity: Damage, first: -1, last: -1}
		m.said = "keeplog-marks knows it, and that it held no records"
		if slot.offset > slot.logStart {
			m.first, m.last = slot.logStart, slot.offset-1
			m.said = fmt.Sprintf("keeplog-marks promises records up to offset %d in it", slot.offset-1)
		}
		gone = append(gone, m)
	}
	return gone
}

// missingPoints are the partitions that Kafka's checkpoints name. Where the marks are complete, a line without a mark is of a deleted partition.
func (d *Dump) missingPoints(data *dataDir, at presence) []missingPartition {
	if data.own && data.marks != nil && data.marks.complete {
		return nil
	}
	var gone []missingPartition
	for line, offset := range data.recovery {
		topic, number, _ := strings.Cut(line, " ")
		partition, err := strconv.ParseInt(number, 10, 32)
		if err != nil || at.names[line] || at.left[line] {
			continue
		}
		if _, there := d.topics[topic]; d.placed != nil && !there { // deleted
			continue
		}
		m := missingPartition{topic: topic, partition: int32(partition), severity: Damage, first: -1, last: -1}
		m.said = "recovery-point-offset-checkpoint names it"
		if offset > 0 {
			m.last = offset - 1
			m.said = fmt.Sprintf("recovery-point-offset-checkpoint promises records up to offset %d in it", offset-1)
		}
		gone = append(gone, m)
	}
	return gone
}

// missingPlaced are the partitions that the metadata places on this node alone. A kill may come between the record and the directory; after a
// clean stop only a partition that could not be opened has neither directory nor mark.
func (d *Dump) missingPlaced(dir string, data *dataDir, at presence) []missingPartition {
	node, err := d.nodeID(dir)
	if d.placed == nil || err != nil || !data.own && !data.clean {
		return nil
	}
	marked := data.own && data.marks != nil && data.marks.complete
	var gone []missingPartition
	for id, t := range d.placed {
		for i, replicas := range t.replicas {
			if !slices.Equal(replicas, []metadata.BrokerID{node}) || at.names[partitionKey(t.name, int32(i))] || at.ids[markKey{id, int32(i)}] {
				continue
			}
			m := missingPartition{topic: t.name, partition: int32(i), severity: Note, first: -1, last: -1}
			m.said = "the metadata has it and keeplog-marks does not: it never held a record, and the next start makes it"
			if !marked && data.clean {
				m.severity, m.said = Damage, "the metadata says that it is here"
			}
			gone = append(gone, m)
		}
	}
	return gone
}

// nodeID reads node.id of meta.properties.
func (d *Dump) nodeID(dir string) (metadata.BrokerID, error) {
	for line := range strings.Lines(string(d.readSmall(filepath.Join(dir, "meta.properties")))) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "node.id="); ok {
			n, err := strconv.ParseInt(v, 10, 32)
			return metadata.BrokerID(n), err
		}
	}
	return 0, fmt.Errorf("%s: no node.id", dir)
}
