package quorum

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/keeplog/keeplog/metadata"
)

// hello is what members tell each other of themselves, both ways. It is the whole of what a node knows before Raft reaches it.
type hello struct {
	who     identity
	cluster string
	// empty says that the node has neither log nor term nor vote; begun that its log has a configuration.
	empty, begun bool
	// listed is its controller.quorum.voters, by id.
	listed []listedVoter
	// internal is where the broker listens for other brokers, controller where it listens for other members.
	internal, controller metadata.Endpoint
	// leader is who leads as far as it knows, -1 for nobody; leading that it does itself and has applied all before its term.
	leader  metadata.BrokerID
	leading bool
	term    uint64
	// applied is the index of its image.
	applied uint64
	// members are those it knows, the removed ones too.
	members []metadata.Member
	// verify asks the receiver to make sure of its leadership before it answers.
	verify bool
	// about asks for the hash of the image at an index; link is that hash, if linked.
	about  uint64
	linked bool
	link   [32]byte
}

// listedVoter is an entry of controller.quorum.voters.
type listedVoter struct {
	id      metadata.BrokerID
	address string
}

func listOf(voters []Voter) []listedVoter {
	list := make([]listedVoter, len(voters))
	for i, v := range voters {
		list[i] = listedVoter{v.ID, v.Address}
	}
	slices.SortFunc(list, func(a, b listedVoter) int { return cmp.Compare(a.id, b.id) })
	return list
}

func (h *hello) append(w []byte) []byte {
	w = appendString(appendIdentity(w, h.who), h.cluster)
	w = appendFlag(appendFlag(w, h.empty), h.begun)
	w = binary.AppendUvarint(w, uint64(len(h.listed)))
	for _, v := range h.listed {
		w = appendString(binary.AppendVarint(w, int64(v.id)), v.address)
	}
	w = appendEndpoint(appendEndpoint(w, h.internal), h.controller)
	w = appendFlag(binary.AppendVarint(w, int64(h.leader)), h.leading)
	w = binary.AppendUvarint(binary.AppendUvarint(w, h.term), h.applied)
	w = binary.AppendUvarint(w, uint64(len(h.members)))
	for _, m := range h.members {
		w = appendEndpoint(appendIdentity(w, identity{m.ID, m.Directory}), m.Controller)
		w = appendFlag(appendFlag(w, m.Voter), m.Removed)
	}
	w = binary.AppendUvarint(appendFlag(w, h.verify), h.about)
	return append(appendFlag(w, h.linked), h.link[:]...)
}

func readHello(b []byte) (*hello, error) {
	f := &fields{b: b}
	h := &hello{who: f.identity(), cluster: f.text(), empty: f.flag(), begun: f.flag()}
	for range f.count(2) {
		h.listed = append(h.listed, listedVoter{f.id(), f.text()})
	}
	h.internal, h.controller = f.endpoint(), f.endpoint()
	h.leader, h.leading, h.term, h.applied = f.id(), f.flag(), f.uint(), f.uint()
	for range f.count(23) {
		who := f.identity()
		h.members = append(h.members, metadata.Member{
			ID: who.id, Directory: who.directory, Controller: f.endpoint(), Voter: f.flag(), Removed: f.flag(),
		})
	}
	h.verify, h.about, h.linked = f.flag(), f.uint(), f.flag()
	copy(h.link[:], f.take(uint64(len(h.link))))
	return h, f.end()
}

// joinStatus is the answer to a join.
type joinStatus byte

const (
	// joined: the node is a member, or was one before with this directory.
	joined joinStatus = 0
	// joinElsewhere: another node leads.
	joinElsewhere joinStatus = 1
	// joinRefused: it can never be a member as it is.
	joinRefused joinStatus = 2
	// joinLater: not now.
	joinLater joinStatus = 3
	// joinRemoved: it was a member and was removed.
	joinRemoved joinStatus = 4
)

// joinAnswer is the answer to a join, whose request is a hello.
type joinAnswer struct {
	status joinStatus
	// leader is who to ask, -1 when that is not known, and controller where.
	leader     metadata.BrokerID
	controller metadata.Endpoint
	text       string
}

func (a joinAnswer) append(w []byte) []byte {
	w = binary.AppendVarint(append(w, byte(a.status)), int64(a.leader))
	return appendString(appendEndpoint(w, a.controller), a.text)
}

func readJoinAnswer(b []byte) (a joinAnswer, err error) {
	f := &fields{b: b}
	if p := f.take(1); p != nil {
		a.status = joinStatus(p[0])
	}
	a.leader, a.controller, a.text = f.id(), f.endpoint(), f.text()
	return a, f.end()
}
