package log

import (
	"maps"
	"path"
	"sync"

	"github.com/keeplog/keeplog/record"
)

type offsets = map[TopicPartition]record.Offset

// points are Kafka's four offset checkpoints, as they are on disk.
type points struct {
	mu                                    sync.Mutex // held across their writes: they have one writer
	recovery, starts, watermarks, cleaner offsets
}

func (p *points) load(d *Dir) (err error) {
	for name, m := range map[string]*offsets{
		RecoveryPointFile: &p.recovery, LogStartFile: &p.starts, WatermarkFile: &p.watermarks, CleanerFile: &p.cleaner,
	} {
		if *m, err = d.loadOffsets(name); err != nil {
			return err
		}
	}
	return nil
}

// of is what they say of a partition; 0 for nothing.
func (p *points) of(key TopicPartition) (recovery, start, watermark record.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recovery[key], p.starts[key], p.watermarks[key]
}

// keep are the lines of partitions that were not opened yet.
func (d *Dir) keep(m offsets) offsets {
	kept := offsets{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range d.unseen {
		if o, ok := m[key]; ok {
			kept[key] = o
		}
	}
	return kept
}

func (d *Dir) writeOffsets(name string, m offsets) error {
	return replaceFile(d.fs, path.Join(d.path, name), EncodeOffsets(m))
}

// writeWatermarks keeps replication-offset-checkpoint, if it changed.
func (d *Dir) writeWatermarks(logs []*Log) error {
	p := &d.points
	p.mu.Lock()
	defer p.mu.Unlock()
	m := d.keep(p.watermarks)
	for _, l := range logs {
		o := record.Offset(l.watermark.Load())
		if o < 0 {
			o = l.loaded
		}
		m[l.key()] = o
	}
	if p.watermarks != nil && maps.Equal(m, p.watermarks) {
		return nil
	}
	if err := d.writeOffsets(WatermarkFile, m); err != nil {
		return err
	}
	p.watermarks = m
	return nil
}

// writePoints keeps Kafka's recovery points and log starts.
func (d *Dir) writePoints(logs []*Log) error {
	p := &d.points
	p.mu.Lock()
	defer p.mu.Unlock()
	recovery, starts := d.keep(p.recovery), d.keep(p.starts)
	for _, l := range logs {
		recovery[l.key()] = l.DurableEnd()
		if start := l.StartOffset(); start > l.view.Load().segments[0].Base() {
			starts[l.key()] = start
		}
	}
	if err := d.writeOffsets(RecoveryPointFile, recovery); err != nil {
		return err
	}
	p.recovery = recovery
	if err := d.writeOffsets(LogStartFile, starts); err != nil {
		return err
	}
	p.starts = starts
	return nil
}

// lower brings the recovery point and the high watermark of a partition below a truncation, durably: they must not outlive what
// they were about. Only after an unclean election is a log cut below its watermark; a start with the old one would take for
// committed what is not.
func (d *Dir) lower(key TopicPartition, end record.Offset) error {
	p := &d.points
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.recovery, err = d.lowered(RecoveryPointFile, p.recovery, key, end); err == nil {
		p.watermarks, err = d.lowered(WatermarkFile, p.watermarks, key, end)
	}
	return err
}

// lowered is a checkpoint with no more than end for a partition, which is on disk then.
func (d *Dir) lowered(name string, m offsets, key TopicPartition, end record.Offset) (offsets, error) {
	if m[key] <= end {
		return m, nil
	}
	next := maps.Clone(m)
	next[key] = end
	if err := d.writeOffsets(name, next); err != nil {
		return m, err
	}
	return next, nil
}

// forget takes what the checkpoints say of a deleted partition out of them, durably, before a new one of that name is made:
// it would be taken for the new one's.
func (d *Dir) forget(key TopicPartition) error {
	p := &d.points
	p.mu.Lock()
	_, recovery := p.recovery[key]
	_, start := p.starts[key]
	_, watermark := p.watermarks[key]
	p.mu.Unlock()
	if recovery || start {
		if err := d.writePoints(d.open()); err != nil {
			return err
		}
	}
	if watermark {
		return d.writeWatermarks(d.open())
	}
	return nil
}
