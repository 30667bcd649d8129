package log

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/keeplog/keeplog/internal/invariant"
)

// claim is one directory of a partition, of several that may be there after a stop.
type claim struct {
	dir  *Dir
	at   Found
	mark Mark
	// future is what the name says, copy what the mark says.
	future, marked, copy bool
}

// rank orders the claims: the largest has the replica. A copy that has not taken over is below all.
func (c *claim) rank() int64 {
	switch {
	case c.marked && !c.copy:
		return int64(c.mark.Moves)
	case c.future:
		return -1
	}
	return 0
}

// kin says that both are of one lineage, as far as the marks tell: the one with the larger number of moves came from the other one, which
// took nothing after that.
func (c *claim) kin(o *claim) bool {
	one := c.mark.Lineage != 0 && c.mark.Lineage == o.mark.Lineage || invariant.Seeded(invariant.LineageIgnored)
	return c.marked && o.marked && one && c.at.TopicID == o.at.TopicID
}

// SettleMoves brings the moves to an end that the last stop has interrupted, once all data directories of a node are open and before a log
// is opened: the replica is where the mark with the largest number of moves is, its directory gets its name, the one of the same lineage that was
// moved away is deleted. Copies that can be gone on with are left, one a partition (TakeFuture); others are deleted, and where there is
// nothing of which they are a copy they are put aside. Two directories of equal rank, of two lineages, or of a lineage that is not known are left
// for the caller to refuse: either may have records that the other one has not.
func SettleMoves(dirs []*Dir) error {
	claims := map[TopicPartition][]*claim{}
	for _, d := range dirs {
		for _, f := range d.found {
			claims[TopicPartition{f.Topic, f.Partition}] = append(claims[TopicPartition{f.Topic, f.Partition}], &claim{dir: d, at: f})
		}
		for _, f := range d.futures {
			claims[TopicPartition{f.Topic, f.Partition}] = append(claims[TopicPartition{f.Topic, f.Partition}], &claim{dir: d, at: f, future: true})
		}
	}
	for key, all := range claims {
		if len(all) == 1 && !all[0].future {
			continue
		}
		if err := settleClaims(all); err != nil {
			return fmt.Errorf("log: settling the move of %s: %w", DirName(key.Topic, key.Partition), err)
		}
	}
	for _, d := range dirs {
		if err := d.dropStaleMarks(); err != nil {
			return err
		}
	}
	return nil
}

// settleClaims decides about one partition.
func settleClaims(all []*claim) error {
	for _, c := range all {
		if c.mark, c.marked = c.dir.marks.get(markKey{c.at.TopicID, c.at.Partition}); c.marked {
			c.copy = c.mark.Future
		}
		if c.future && !c.copy && slices.ContainsFunc(all, func(o *claim) bool { return o.dir == c.dir && !o.future }) {
			c.mark, c.marked = Mark{}, false // the mark is the other's
		}
	}
	if err := oneTookOver(all); err != nil {
		return err
	}
	all, err := sameTopic(all)
	if err != nil || len(all) == 0 {
		return err
	}
	slices.SortStableFunc(all, func(a, b *claim) int { return cmp.Compare(b.rank(), a.rank()) })
	best := all[0]
	if best.rank() < 0 {
		return setAside(all, "there is no replica of which it is a copy")
	}
	if best.future {
		if err := best.promote(all[1:]); err != nil {
			return err
		}
	}
	return best.prevail(all[1:])
}

// oneTookOver refuses two copies in one directory, where its one mark says that one of them has taken over.
func oneTookOver(all []*claim) error {
	for i, c := range all {
		for _, o := range all[:i] {
			if c.future && o.future && c.marked && !c.copy && c.dir == o.dir && c.at.TopicID == o.at.TopicID {
				return fmt.Errorf("%w: one of %s and %s has taken over, and the mark does not tell which: move the one with fewer records away",
					ErrInTheWay, o.at.Path, c.at.Path)
			}
		}
	}
	return nil
}

// sameTopic sorts out copies of another topic than the directories in use are of: one of the same name that was deleted.
func sameTopic(all []*claim) (kept []*claim, err error) {
	names := func(id [16]byte) bool {
		return slices.ContainsFunc(all, func(c *claim) bool { return !c.future && (c.at.TopicID == id || c.at.TopicID == [16]byte{}) })
	}
	plain := slices.ContainsFunc(all, func(c *claim) bool { return !c.future })
	for _, c := range all {
		switch {
		case !c.future || !plain || names(c.at.TopicID):
			kept = append(kept, c)
		case c.rank() < 0:
			err = c.dir.dropFuture(c, c.dir.DeleteFound)
		default:
			err = setAside([]*claim{c}, "another topic has its name")
		}
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// setAside puts copies aside.
func setAside(all []*claim, why string) error {
	for _, c := range all {
		if err := c.dir.dropFuture(c, func(f Found) error { return c.dir.Quarantine(f, why) }); err != nil {
			return err
		}
	}
	return nil
}

// promote gives a copy that has taken over the name of the partition's directory.
func (c *claim) promote(others []*claim) error {
	d := c.dir
	for _, o := range others {
		if o.dir == d && !o.future {
			return fmt.Errorf("%w: %s", ErrInTheWay, o.at.Path)
		}
	}
	to := path.Join(d.path, DirName(c.at.Topic, c.at.Partition))
	d.log.Info("a replica has moved here", "from", c.at.Path, "to", to)
	if _, err := d.takeName(c.at.Path, to); err != nil {
		return err
	}
	d.futures = without(d.futures, c.at.Path)
	c.at.Path, c.future = to, false
	d.found = append(d.found, c.at)
	d.mu.Lock()
	d.unseen[to] = TopicPartition{c.at.Topic, c.at.Partition}
	d.mu.Unlock()
	return nil
}

// prevail takes away what the other directories have, but for the copy that is under way, and what cannot be compared.
func (c *claim) prevail(others []*claim) error {
	var under []*claim
	for _, o := range others {
		if o.future && o.copy && o.dir != c.dir && c.kin(o) && int64(o.mark.Moves) == c.rank()+1 {
			under = append(under, o)
			continue
		}
		var err error
		switch outdone := c.kin(o) && o.rank() < c.rank(); {
		case !o.future && outdone && !o.copy:
			err = c.outdo(o)
		case !o.future:
			// the caller refuses two of a name
		case outdone, !o.marked && !o.dir.marks.partial:
			err = o.dir.dropFuture(o, o.dir.DeleteFound)
		case o.copy, !o.marked:
			err = setAside([]*claim{o}, "it may be a copy of another log of that partition than the one in "+c.at.Path)
		default: // it has taken over another log of the partition
			err = o.promote(nil)
		}
		if err != nil {
			return err
		}
	}
	if len(under) < 2 {
		return nil
	}
	for _, o := range under { // where it was to go is not known
		if err := o.dir.dropFuture(o, o.dir.DeleteFound); err != nil {
			return err
		}
	}
	return nil
}

// outdo deletes the directory from which c has moved.
func (c *claim) outdo(o *claim) error {
	d := o.dir
	d.log.Info("a replica has moved from here", "path", o.at.Path, "to", c.at.Path)
	if err := d.retireMoved(o.at, deleteSuffix, nil, 0); err != nil {
		return err
	}
	d.found = without(d.found, o.at.Path)
	return nil
}

// dropFuture takes a copy's directory out in some way.
func (d *Dir) dropFuture(c *claim, out func(Found) error) error {
	f := c.at
	if !c.marked {
		f.TopicID = [16]byte{}
	}
	d.log.Info("a copy that was under way is dropped", "path", f.Path)
	d.futures = without(d.futures, c.at.Path)
	return out(f)
}

// without is a list without the directory of a path.
func without(all []Found, path string) []Found {
	return slices.DeleteFunc(slices.Clone(all), func(f Found) bool { return f.Path == path })
}

// dropStaleMarks frees the marks of copies, and of what moved away, whose directories are gone.
func (d *Dir) dropStaleMarks() error {
	there := func(all []Found, key markKey) bool {
		return slices.ContainsFunc(all, func(f Found) bool {
			return f.Partition == key.partition && (f.TopicID == key.topic || f.TopicID == [16]byte{})
		})
	}
	d.marks.mu.Lock()
	var stale []markKey
	for key, mark := range d.marks.loaded {
		if mark.Future && !there(d.futures, key) || mark.Leaving && !there(d.found, key) {
			stale = append(stale, key)
		}
	}
	d.marks.mu.Unlock()
	if len(stale) == 0 {
		return nil
	}
	for _, key := range stale {
		if err := d.marks.drop(key); err != nil {
			return err
		}
	}
	return d.syncMarks()
}

// here says that the mark is that of a replica that lies in the mark's directory.
func (m *Mark) here() bool { return !m.Future && !m.Leaving }

// descend takes on what a mark tells of the moves. Where the last stop came while a move was being decided, the log may be in another
// directory too, which is not there now: what is written here from now on is of a lineage of its own, durably.
func (l *Log) descend(mark *Mark) error {
	if (mark.Leaving || mark.Arrived) && !invariant.Seeded(invariant.OneLineageForTwo) {
		mark.Leaving, mark.Arrived, mark.Lineage = false, false, newLineage()
		if err := l.dir.marks.putFirm(*mark); err != nil {
			return l.failed(err)
		}
		if err := l.dir.syncMarks(); err != nil {
			return err
		}
		l.dir.marks.remember(*mark)
	}
	if l.moves, l.lineage = mark.Moves, mark.Lineage; l.lineage == 0 {
		l.lineage = newLineage()
	}
	return nil
}

// dropLeft frees a mark whose directory is gone, where that could not be done when it went: another log begins.
func (l *Log) dropLeft() error {
	key := markKey{l.id.TopicID, l.id.Partition}
	if _, ok := l.dir.marks.get(key); !ok {
		return nil
	}
	if err := l.dir.marks.drop(key); err != nil {
		return l.failed(err)
	}
	return l.dir.syncMarks()
}

// newLineage is a lineage that no log has.
func newLineage() uint64 {
	for {
		var b [8]byte
		rand.Read(b[:])
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// TakeFuture finds the copy of a partition that was under way to this directory at the last stop, if it can be gone on with, and leaves
// it to the caller: once.
func (d *Dir) TakeFuture(id Identity) (*Found, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.futures {
		if f := d.futures[i]; f.Identity == id {
			d.futures = without(d.futures, f.Path)
			return &f, true
		}
	}
	return nil, false
}

// dropCopies takes out the copies of a partition that earlier moves to this directory have left: the next one would share the slot of their mark.
func (d *Dir) dropCopies(id Identity) error {
	if l, open := d.Log(id.Topic, id.Partition); open {
		return fmt.Errorf("log: %s is already open", l.path)
	}
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), DirName(id.Topic, id.Partition)+".") {
			continue
		}
		f, ok := d.findFuture(e.Name())
		if !ok || f.Topic != id.Topic || f.Partition != id.Partition {
			continue
		}
		if f.TopicID == [16]byte{} {
			f.TopicID = id.TopicID
		}
		d.log.Info("a copy that an earlier move has left is dropped", "path", f.Path)
		d.mu.Lock()
		d.futures = without(d.futures, f.Path)
		d.mu.Unlock()
		if err := d.DeleteFound(f); err != nil {
			return err
		}
	}
	return nil
}

// findFuture reads the name of a copy's directory.
func (d *Dir) findFuture(name string) (Found, bool) {
	stem, cut := strings.CutSuffix(name, futureSuffix)
	dot := strings.LastIndexByte(stem, '.')
	if !cut || dot < 0 {
		return Found{}, false
	}
	topic, partition, ok := ParseDirName(stem[:dot])
	if !ok {
		return Found{}, false
	}
	return d.read(Found{Identity: Identity{Topic: topic, Partition: partition}, Path: path.Join(d.path, name)}), true
}
