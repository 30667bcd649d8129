package log

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
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

// SettleMoves brings the moves to an end that the last stop has interrupted, once all data directories of a node are open and before a log
// is opened: the replica is where the mark with the largest number of moves is, its directory gets its name, the one that was
// moved away is deleted. Copies that can be gone on with are left, one a partition (TakeFuture); others are deleted, and where there is
// nothing of which they are a copy they are put aside. Two directories of equal rank are left for the caller to refuse.
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
		if err := d.dropStaleCopies(); err != nil {
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
	if err := d.takeName(c.at.Path, to); err != nil {
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

// prevail takes away what the other directories have, but for the copy that is under way.
func (c *claim) prevail(others []*claim) error {
	var under []*claim
	for _, o := range others {
		switch {
		case !o.future && (o.rank() == c.rank() || o.copy || o.at.TopicID != c.at.TopicID || !o.marked && o.dir.marks.partial):
			// the caller refuses two of a name
		case !o.future:
			o.dir.log.Info("a replica has moved from here", "path", o.at.Path, "to", c.at.Path)
			if err := o.dir.DeleteFound(o.at); err != nil {
				return err
			}
			o.dir.found = without(o.dir.found, o.at.Path)
		case o.copy && o.dir != c.dir && o.at.TopicID == c.at.TopicID && int64(o.mark.Moves) == c.rank()+1:
			under = append(under, o)
		default:
			if err := o.dir.dropFuture(o, o.dir.DeleteFound); err != nil {
				return err
			}
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

// dropStaleCopies frees the marks of copies whose directories are gone.
func (d *Dir) dropStaleCopies() error {
	d.marks.mu.Lock()
	var stale []markKey
	for key, mark := range d.marks.loaded {
		if mark.Future && !slices.ContainsFunc(d.futures, func(f Found) bool { return markKey{f.TopicID, f.Partition} == key }) {
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
