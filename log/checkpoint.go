package log

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/record"
)

// ErrBadFile says that one of the small files of a directory is not what was written.
var ErrBadFile = errors.New("log: damaged file")

// Names of Kafka's checkpoints in a data directory.
const (
	RecoveryPointFile = "recovery-point-offset-checkpoint"
	LogStartFile      = "log-start-offset-checkpoint"
	WatermarkFile     = "replication-offset-checkpoint"
	CleanerFile       = "cleaner-offset-checkpoint"
	EpochFile         = "leader-epoch-checkpoint"
)

// TopicPartition names a partition in a checkpoint.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// A checkpoint is text: the version 0, the number of lines, the lines.
//
//	┌──────────────┐      ┌──────────────┐
//	│ 0            │      │ 0            │
//	│ 2            │      │ 2            │
//	│ events 0 417 │      │ 3 0          │   topic partition offset · epoch start-offset
//	│ events 1 9   │      │ 5 1200       │
//	└──────────────┘      └──────────────┘

// EncodeOffsets writes an offset checkpoint, sorted by topic and partition.
func EncodeOffsets(m map[TopicPartition]record.Offset) []byte {
	keys := make([]TopicPartition, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b TopicPartition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	out := fmt.Appendf(nil, "0\n%d\n", len(m))
	for _, k := range keys {
		out = fmt.Appendf(out, "%s %d %d\n", k.Topic, k.Partition, int64(m[k]))
	}
	return out
}

// checkpointLines checks the frame of a checkpoint and splits each line in fields.
func checkpointLines(b []byte, fields int) ([][]string, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: %d lines", ErrBadFile, len(lines))
	}
	if v, err := strconv.Atoi(lines[0]); err != nil {
		return nil, fmt.Errorf("%w: version %q", ErrBadFile, lines[0])
	} else if v > 0 {
		return nil, fmt.Errorf("%w: checkpoint version %d", ErrNewerVersion, v)
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%w: %q lines are announced, %d are there", ErrBadFile, lines[1], len(lines)-2)
	}
	out := make([][]string, n)
	for i, line := range lines[2:] {
		out[i] = strings.Split(line, " ")
		if len(out[i]) != fields {
			return nil, fmt.Errorf("%w: line %d: %q", ErrBadFile, i+3, line)
		}
	}
	return out, nil
}

// DecodeOffsets reads an offset checkpoint. Errors: ErrBadFile, ErrNewerVersion.
func DecodeOffsets(b []byte) (map[TopicPartition]record.Offset, error) {
	lines, err := checkpointLines(b, 3)
	if err != nil {
		return nil, err
	}
	m := make(map[TopicPartition]record.Offset, len(lines))
	for i, f := range lines {
		p, err := strconv.ParseInt(f[1], 10, 32)
		if err != nil || p < 0 {
			return nil, fmt.Errorf("%w: line %d: partition %q", ErrBadFile, i+3, f[1])
		}
		o, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || o < 0 {
			return nil, fmt.Errorf("%w: line %d: offset %q", ErrBadFile, i+3, f[2])
		}
		m[TopicPartition{f[0], int32(p)}] = record.Offset(o)
	}
	return m, nil
}

// EpochEntry says that the batches from Start on are of a leader epoch, up to the next entry.
type EpochEntry struct {
	Epoch record.Epoch
	Start record.Offset
}

// EncodeEpochs writes a leader epoch checkpoint.
func EncodeEpochs(entries []EpochEntry) []byte {
	out := fmt.Appendf(nil, "0\n%d\n", len(entries))
	for _, e := range entries {
		out = fmt.Appendf(out, "%d %d\n", e.Epoch, int64(e.Start))
	}
	return out
}

// DecodeEpochs reads a leader epoch checkpoint: epochs and offsets must grow.
func DecodeEpochs(b []byte) ([]EpochEntry, error) {
	lines, err := checkpointLines(b, 2)
	if err != nil {
		return nil, err
	}
	entries := make([]EpochEntry, 0, len(lines))
	last := EpochEntry{record.NoEpoch, -1}
	for i, f := range lines {
		e, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil || e < 0 || e > math.MaxInt32 {
			return nil, fmt.Errorf("%w: line %d: epoch %q", ErrBadFile, i+3, f[0])
		}
		o, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || o < 0 {
			return nil, fmt.Errorf("%w: line %d: offset %q", ErrBadFile, i+3, f[1])
		}
		entry := EpochEntry{record.Epoch(e), record.Offset(o)}
		if entry.Epoch <= last.Epoch || entry.Start <= last.Start {
			return nil, fmt.Errorf("%w: line %d: epoch %d from %d after epoch %d from %d", ErrBadFile, i+3, e, o, last.Epoch, last.Start)
		}
		entries, last = append(entries, entry), entry
	}
	return entries, nil
}
