package dump

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// lines turns items into the lines that Kafka's own dump tool prints.
type lines struct {
	sink  []string
	types map[string]string // by path
}

func (l *lines) Close() error { return nil }

func (l *lines) Put(i Item) error {
	add := func(format string, args ...any) { l.sink = append(l.sink, fmt.Sprintf(format, args...)) }
	switch x := i.(type) {
	case *FileStart:
		l.types[x.Path] = x.Type
		add("Dumping %s", x.Path)
	case *Batch:
		add("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d "+
			"partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s position: %d %s: %d size: %d magic: 2 "+
			"compresscodec: %s crc: %d isvalid: %t", x.Base, x.Last, x.Count, x.BaseSeq, x.LastSeq, x.ProducerID, x.ProdEpoch, x.Epoch,
			x.Txn, x.Control, optional(x.Horizon), x.Position, x.TimeType, x.MaxTime, x.Size, x.Codec, x.CRC, x.OK)
	case *Record:
		var keys []string
		for h := x.Headers; ; {
			k, _, ok := h.Next()
			if !ok {
				break
			}
			keys = append(keys, string(k))
		}
		line := fmt.Sprintf("| offset: %d %d keySize: %d valueSize: %d sequence: %d headerKeys: [%s]", x.Offset, x.Timestamp, size(x.Key), size(x.Value), x.Sequence, strings.Join(keys, ","))
		if x.Marker != nil && x.Marker.Get("coordinator_epoch") != nil {
			line += fmt.Sprintf(" endTxnMarker: %s coordinatorEpoch: %d", x.Marker.What, x.Marker.Get("coordinator_epoch"))
		}
		add("%s", line)
	case *Entry:
		switch x.What {
		case "index":
			add("offset: %d position: %d", x.Get("offset"), x.Get("position"))
		case "time":
			add("timestamp: %d offset: %d", x.Get("timestamp"), x.Get("offset"))
		case "aborted":
			add("version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d", x.Get("producer_id"), x.Get("first_offset"), x.Get("last_offset"), x.Get("last_stable_offset"))
		case "producer":
			l.producer(add, x)
		}
	}
	return nil
}

func (l *lines) producer(add func(string, ...any), x *Entry) {
	txn, last := x.Get("txn_start_offset").(record.Offset), x.Get("last_offset").(record.Offset)
	open := "OptionalLong.empty"
	if txn >= 0 {
		open = fmt.Sprintf("OptionalLong[%d]", txn)
	}
	line := fmt.Sprintf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d", x.Get("producer_id"), x.Get("producer_epoch"), x.Get("coordinator_epoch"), open, x.Get("timestamp"))
	if last >= 0 {
		delta, seq := x.Get("offset_delta").(int32), x.Get("last_sequence").(record.Sequence)
		line += fmt.Sprintf(" firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d", seq-record.Sequence(delta), seq, last, delta, x.Get("timestamp"))
	}
	add("%s", line)
}

func size(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

func optional(ms *int64) string {
	if ms == nil {
		return "OptionalLong.empty"
	}
	return "OptionalLong[" + strconv.FormatInt(*ms, 10) + "]"
}

var recordTime = regexp.MustCompile(`^(\| offset: \d+) (?:CreateTime|LogAppendTime): (-?\d+)`)

// quorumRecord is the content of the control records of Kafka's metadata log, which we show by their names.
var quorumRecord = regexp.MustCompile(` (?:LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters): .*$`)

// zeroEntry is what it prints for the first slot of an index that is allocated and has no entries yet.
var zeroEntry = regexp.MustCompile(`^(?:offset: \d+ position: 0|timestamp: 0 offset: \d+)$`)

// TestLikeKafkasTool compares what we read with what Apache Kafka's own dump tool prints, for every file of the directories named in
// KEEPLOG_DUMP_DIRS (default: the golden ones). KEEPLOG_KAFKA_TOOL is the command that runs it: `kafka tool dump-log`.
func TestLikeKafkasTool(t *testing.T) {
	tool := os.Getenv("KEEPLOG_KAFKA_TOOL")
	if tool == "" {
		t.Skip("KEEPLOG_KAFKA_TOOL is not set: make interop runs this where Java and Maven are there")
	}
	dirs := []string{filepath.Join(formats, "kafka-4.4")}
	if s := os.Getenv("KEEPLOG_DUMP_DIRS"); s != "" {
		dirs = strings.Fields(s)
	}
	var paths []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			switch n := parseName(p); n.typ {
			case TypeSegment, TypeIndex, TypeTimeIndex, TypeTxnIndex, TypeSnapshot:
				if n.state == "" {
					paths = append(paths, p)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	args := append(strings.Fields(tool), "--deep-iteration", "--files", strings.Join(paths, ","))
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var want []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if strings.HasPrefix(line, "Found timestamp mismatch") || strings.HasPrefix(line, "Non-consecutive offsets") {
			break // its findings, after all files: gaps of compaction, and the zeros of active indexes
		}
		if strings.HasPrefix(line, "Log starting offset") || strings.HasSuffix(line, "index is empty.") || zeroEntry.MatchString(line) {
			continue
		}
		line = recordTime.ReplaceAllString(strings.TrimSpace(line), "$1 $2")
		want = append(want, quorumRecord.ReplaceAllString(line, ""))
	}
	got := &lines{types: map[string]string{}}
	if _, err := Run(context.Background(), Options{FS: vfs.OS(), Records: true, Verify: true}, got, paths...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.sink); diff != "" {
		t.Errorf("(-kafka +keeplog):\n%s", diff)
	}
	t.Logf("%d files, %d lines agree", len(paths), len(want))
}
