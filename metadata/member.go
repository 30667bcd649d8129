package metadata

import (
	"cmp"
	"errors"
	"slices"
)

// Member is a node that keeps the metadata log: a voter, or one that follows without a vote.
type Member struct {
	ID BrokerID
	// Directory is the data directory that holds its log: a wiped disk is another member.
	Directory DirectoryID
	// Controller is where it listens for the other members; its zero value is not known yet.
	Controller Endpoint
	Voter      bool
	// Removed says that it was taken out. Its directory never comes back.
	Removed bool
}

// ErrNoMember: no member of that id and directory is there, or one of that id is there with another directory.
var ErrNoMember = errors.New("metadata: not the member that is known")

// MemberChanged adds a member, changes where it listens or gives it a vote, or takes it out. It is refused when a member of
// that id is there with another directory, when the directory was removed before, and when a member that is not there is to
// be removed.
type MemberChanged Member

// ChainCheckpoint says that the image at Index has the running hash Hash (see [Image.Chain]). It changes nothing: a node whose
// image at Index had another one has gone astray.
type ChainCheckpoint struct {
	Index uint64
	Hash  [32]byte
}

// Kind is the number of the record's kind.
func (MemberChanged) Kind() Kind { return KindMemberChanged }

// Kind is the number of the record's kind.
func (ChainCheckpoint) Kind() Kind { return KindChainCheckpoint }

func (m MemberChanged) appendBody(w []byte) []byte {
	return (*Member)(&m).append(append(w, recordVersion))
}

func (m *Member) append(w []byte) []byte {
	w = appendInt(w, int64(m.ID))
	w = append(w, m.Directory[:]...)
	w = appendListeners(w, []Endpoint{m.Controller})
	w = appendBool(w, m.Voter)
	return appendBool(w, m.Removed)
}

func readMember(r *reader) Member {
	m := Member{ID: r.int32(), Directory: r.id()}
	if listeners := readListeners(r); len(listeners) == 1 {
		m.Controller = listeners[0]
	} else {
		r.fail("a member with %d endpoints", len(listeners))
	}
	m.Voter, m.Removed = r.bool(), r.bool()
	return m
}

func (c ChainCheckpoint) appendBody(w []byte) []byte {
	w = appendUint(append(w, recordVersion), c.Index)
	return append(w, c.Hash[:]...)
}

func readChainCheckpoint(r *reader) ChainCheckpoint {
	c := ChainCheckpoint{Index: r.uint()}
	copy(c.Hash[:], r.take(len(c.Hash)))
	return c
}

// Member finds a member by id, also one that was removed.
func (m *Image) Member(id BrokerID) (Member, bool) {
	if found, ok := m.members.get(id); ok {
		return *found, true
	}
	for _, v := range m.voters {
		if v.ID == id {
			return Member{ID: id, Directory: v.Directory, Voter: true}, true
		}
	}
	return Member{}, false
}

// Members lists the members by id: the first voters, and those that came, without those that went. The slice is the caller's.
func (m *Image) Members() []Member {
	return slices.DeleteFunc(m.everyMember(), func(x Member) bool { return x.Removed })
}

// RemovedMembers lists by id the members that were removed, as long as no other has taken the id.
func (m *Image) RemovedMembers() []Member {
	return slices.DeleteFunc(m.everyMember(), func(x Member) bool { return !x.Removed })
}

func (m *Image) everyMember() []Member {
	var all []Member
	for _, v := range m.voters {
		if _, ok := m.members.get(v.ID); !ok {
			all = append(all, Member{ID: v.ID, Directory: v.Directory, Voter: true})
		}
	}
	for _, x := range m.members.all() {
		all = append(all, *x)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (d *draft) memberChanged(r MemberChanged) Result {
	old, known := d.img.Member(r.ID)
	live := known && !old.Removed
	switch {
	case r.ID < 0 || r.Directory == DirectoryID{}:
		return refuse(RefusedInvalid)
	case known && old.Removed && old.Directory == r.Directory,
		live && old.Directory != r.Directory,
		r.Removed && !live:
		return refuse(RefusedMember)
	}
	next := Member(r)
	if live && old == next {
		return Result{}
	}
	d.img.members = d.img.members.put(r.ID, &next)
	return Result{}
}

func sameMembers(a, b *Image) bool {
	return a.members.root == b.members.root && slices.Equal(a.voters, b.voters) || slices.Equal(a.everyMember(), b.everyMember())
}
