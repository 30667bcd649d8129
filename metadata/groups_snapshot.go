package metadata

// groupStep is about how many bytes of a group go into one frame of a snapshot.
const groupStep = 1 << 20

// snapshotVersion is the oldest version that has all that is there.
func (m *Image) snapshotVersion(groups *Frozen, unclean int) byte {
	switch {
	case len(m.ignoredKinds) > 0:
		return snapshotVersion
	case m.shards != nil, groups != nil && len(groups.groups) > 0:
		return 3
	case m.members.len() > 0, unclean > 0:
		return 2
	}
	return 1
}

// groups writes the shards that were ever assigned, and the groups by name.
func (w *frameWriter) groups(m *Image, frozen *Frozen) {
	var b []byte
	for i := range int32(Shards) {
		if s := m.Shard(i); s != (Shard{Owner: NoLeader}) {
			b = appendInt(appendInt(appendInt(b[:0], int64(i)), int64(s.Owner)), s.Epoch)
			w.frame(frameShard, b)
		}
	}
	if frozen == nil {
		return
	}
	for _, g := range frozen.sorted() {
		w.group(g)
	}
}

// group writes a group in frames of about groupStep bytes.
func (w *frameWriter) group(g *groupTable) {
	offsets, entries := g.sortedOffsets(), g.sortedEntries()
	for first := true; first || len(offsets)+len(entries) > 0; first = false {
		var commits, keys []byte
		n := 0
		for n < len(offsets) && len(commits) < groupStep {
			commits = appendCommit(commits, &offsets[n])
			n++
		}
		k := 0
		for k < len(entries) && len(commits)+len(keys) < groupStep {
			keys = appendEntry(keys, entries[k])
			k++
		}
		b := append(appendUint(appendText(nil, g.name), uint64(n)), commits...)
		w.frame(frameGroup, append(appendUint(b, uint64(k)), keys...))
		offsets, entries = offsets[n:], entries[k:]
	}
}

func (m *Image) readShard(r *reader) {
	i, s := r.int32(), Shard{Owner: r.int32(), Epoch: r.int()}
	if r.err != nil || i < 0 || i >= Shards {
		r.fail("shard %d", i)
		return
	}
	next := new([Shards]Shard)
	for n := range next {
		next[n] = m.Shard(int32(n))
	}
	next[i] = s
	m.shards = next
}

// readGroup reads a frame of a group; the tables are not in use yet.
func (t *Tables) readGroup(r *reader) {
	name := r.text()
	offsets, entries := readCommits(r), readEntries(r)
	if r.err != nil {
		return
	}
	t.commit(name, offsets, func(GroupPartition) bool { return true })
	t.change(name, entries)
}
