package torture

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/keeplog/keeplog/internal/dump"
	"github.com/keeplog/keeplog/vfs"
)

// offline reads and checks every file of a node that is down, and tells the checker what its replicas of our topics hold.
func (r *run) offline(ctx context.Context, node Node, assigned *leadership) error {
	s := &fileSink{run: r, node: node, replicas: map[Partition]*Replica{}}
	for p, l := range assigned.leaders {
		for _, id := range l.replicas {
			if id == node.ID {
				s.replicas[p] = r.check.Replica(p, fmt.Sprintf("node %d, files", node.ID))
				s.replicas[p].Node = node.ID
			}
		}
	}
	for _, planted := range r.planted {
		if planted.node == node.ID && !planted.mended && planted.there() {
			s.planted = append(s.planted, planted)
		}
	}
	_, err := dump.Run(ctx, dump.Options{FS: vfs.OS(), Records: true, Verify: true}, s, node.DataDir)
	for _, planted := range s.planted {
		if err == nil && !planted.found {
			r.check.Violated(Damaged, "node %d: the check of the files does not find the bit that was flipped in %s", node.ID, planted)
		}
	}
	return err
}

// fileSink takes what dump finds in a data directory.
type fileSink struct {
	run      *run
	node     Node
	replicas map[Partition]*Replica
	now      *Replica // of the segment that is read; nil for files that are not ours
	planted  []*rot   // what must be found
	broken   bool     // the batch that is read is damaged
}

// Put implements dump.Sink.
func (s *fileSink) Put(i dump.Item) error {
	switch i := i.(type) {
	case *dump.FileStart:
		s.now = nil
		if topic, number, ok := dump.PartitionOf(i.Path); ok && i.Type == dump.TypeSegment && i.State == "" {
			s.now = s.replicas[Partition{topic, number}]
		}
	case *dump.Batch:
		if s.broken = !i.OK; s.now != nil && i.OK {
			s.now.Batch(int64(i.Base), uint64(i.Last), uint64(i.Epoch), uint64(i.CRC), uint64(i.ProducerID), uint64(i.BaseSeq))
			s.now.End(int64(i.Last) + 1)
		}
	case *dump.Record:
		if s.now != nil && i.Marker == nil && !s.broken {
			id, number, ok := parseValue(i.Value)
			s.now.Record(int64(i.Offset), id, ok && number == s.now.part.Number)
		}
	case *dump.Problem:
		if i.Severity == dump.Damage && !s.expected(i) {
			rel, err := filepath.Rel(s.node.DataDir, i.File)
			if err != nil {
				rel = i.File
			}
			s.run.check.Violated(Damaged, "node %d: %s at %d: %s", s.node.ID, rel, i.Position, i.Text)
		}
	}
	return nil
}

// expected says whether a problem is what was done on purpose.
func (s *fileSink) expected(i *dump.Problem) bool {
	for _, r := range s.planted {
		if i.File == r.file && i.Position < r.to && i.End > r.from {
			r.found = true
			return true
		}
	}
	return false
}

// Close implements dump.Sink.
func (s *fileSink) Close() error { return nil }
