package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/keeplog/keeplog/record"
)

// rot is a bit that was flipped in a batch of one replica. What is expected of it: that batch of that replica is never given out, and the
// check of the files finds it; everything else is as ever.
type rot struct {
	node int32
	part Partition
	file string // its path
	at   int64  // of the byte in the file
	now  byte   // what the byte is since then
	// The batch: its offsets, next exclusive, and its bytes.
	base, next int64
	from, to   int64

	found  bool // by the check of the files
	mended bool // the replica was made anew
}

func (r *rot) String() string {
	return fmt.Sprintf("offsets %d to %d of %s on node %d (%s at %d)", r.base, r.next-1, r.part, r.node, filepath.Base(r.file), r.at)
}

// there says whether the file still has the rotten batch.
func (r *rot) there() bool {
	f, err := os.Open(r.file)
	if err != nil {
		return false
	}
	defer f.Close()
	batch := make([]byte, r.to-r.from)
	if _, err := io.ReadFull(io.NewSectionReader(f, r.from, r.to-r.from), batch); err != nil {
		return false
	}
	b, _, err := record.Next(batch)
	return batch[r.at-r.from] == r.now && (err != nil || b.CheckCRC() != nil)
}

// rotten are those that have not been mended.
func (n *nemesis) rotten() []*rot {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.rots), func(r *rot) bool { return r.mended })
}

// rot kills a node, flips a bit in one of its closed segments, and starts it again.
func (o *operation) rot() error {
	nodes := o.cluster.Nodes()
	node := nodes[o.rng.IntN(len(nodes))]
	got := o.nemesis.hold(o.ctx, []int32{node.ID}, 2*holdLimit)
	defer func() { o.release(got) }()
	if len(got) == 0 {
		return fmt.Errorf("%w: node %d is taken", errNotNow, node.ID)
	}
	// Until here every replica has what is to be damaged in this one.
	if err := o.whole(10 * time.Second); err != nil {
		return err
	}
	file, part, ok := o.closed(node)
	if !ok {
		return fmt.Errorf("%w: no replica of node %d has closed segments enough", errNotNow, node.ID)
	}
	o.toNode(o.ctx, step{act: actKill}, node.ID)
	r, err := o.flip(file, o.check.Floor(part))
	if r != nil {
		r.node, r.part = node.ID, part
		o.tell("a bit is flipped: %s", r)
		o.check.Rotten(r.part, r.node, r.base, r.next)
		o.mu.Lock()
		o.rots = append(o.rots, r)
		o.mu.Unlock()
	}
	o.toNode(o.ctx, step{act: actStart}, node.ID)
	o.release(got)
	got = nil
	if err != nil {
		return err
	}
	o.pause(o.ctx, o.hold)
	if o.rng.IntN(2) == 0 {
		return nil // stays until the end
	}
	return o.mendRot()
}

// closed finds the oldest segment of a replica that has another one behind it.
func (o *operation) closed(node Node) (file string, part Partition, ok bool) {
	rotten := o.rotten()
	parts := o.some(len(o.places.list()))
	for _, p := range parts {
		dir := filepath.Join(node.DataDir, p.String())
		names, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(names) < 2 || slices.ContainsFunc(rotten, func(r *rot) bool { return r.part == p }) {
			continue
		}
		slices.Sort(names)
		return names[0], p, true
	}
	return "", Partition{}, false
}

// flip flips one bit of what the checksum of a batch covers. The batch is committed, ending at or below end: no replica in sync needs it again.
func (o *operation) flip(file string, end int64) (*rot, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*rot
	for rest := raw; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil {
			return nil, fmt.Errorf("%s is damaged before anybody damaged it: %w", file, err)
		}
		from := int64(len(raw) - len(rest))
		if int64(b.NextOffset()) > end {
			break
		}
		all = append(all, &rot{file: file, base: int64(b.BaseOffset()), next: int64(b.NextOffset()), from: from, to: int64(len(raw) - len(after))})
		rest = after
	}
	if len(all) == 0 {
		return nil, errors.New(file + " is empty")
	}
	r := all[o.rng.IntN(len(all))]
	const covered = 21 // from here on the checksum covers a batch
	r.at = r.from + covered + int64(o.rng.IntN(int(r.to-r.from)-covered))
	r.now = raw[r.at] ^ 1<<o.rng.IntN(8)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt([]byte{r.now}, r.at)
	return r, errors.Join(err, f.Close())
}

// mendRot makes rotten replicas anew from good ones, as an operator does: away with them, and back.
func (o *operation) mendRot() error {
	rotten := o.rotten()
	if len(rotten) == 0 {
		return nil
	}
	defer o.excuse()()
	without, with := map[Partition][]int32{}, map[Partition][]int32{}
	var parts []Partition
	for _, r := range rotten {
		with[r.part] = o.shuffled()
		without[r.part] = slices.DeleteFunc(slices.Clone(with[r.part]), func(id int32) bool { return id == r.node })
		parts = append(parts, r.part)
	}
	o.tell("rotten replicas are made anew: %s", movesText(without))
	if err := o.move(without); err != nil {
		return err
	}
	if err := o.moved(parts); err != nil {
		return err
	}
	if err := o.gone(rotten); err != nil {
		return err
	}
	if err := o.move(with); err != nil {
		return err
	}
	if err := o.moved(parts); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range rotten {
		r.mended = true
		o.check.Mended(r.part, r.node)
	}
	return nil
}

// gone waits until the files of the dropped replicas are away.
func (o *operation) gone(rotten []*rot) error {
	return o.retry(func(context.Context) error {
		for _, r := range rotten {
			if _, err := os.Stat(r.file); err == nil {
				return fmt.Errorf("%s is still there after its replica was dropped", r.file)
			}
		}
		return nil
	})
}
