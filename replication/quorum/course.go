package quorum

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
)

// course is what a node does next that is in no configuration of the members yet.
type course struct {
	do     action
	begin  []identity        // actBegin: the members
	join   metadata.Endpoint // actJoin: who to ask; a zero endpoint is whoever answered
	via    identity          // actJoin: who that is
	refuse error             // actRefuse
	wait   string            // actWait: for what
}

type action byte

const (
	actWait action = iota
	// actFollow: the node is a member, and the leader will come.
	actFollow
	// actBegin: the node begins the cluster.
	actBegin
	// actJoin: the node asks to become a member.
	actJoin
	// actRefuse: the node cannot be a member.
	actRefuse
)

// decide is decision by answers: what the others said of themselves at their last answer.
//
// A cluster begins once: the lowest listed node begins it when every listed one has answered that it is empty and has the same
// list. The directories of those answers stand in the first configuration, and Raft's messages name the directory of their
// target: a disk that was wiped afterwards has another one, and takes part in nothing.
func decide(self *hello, answers []*hello) course {
	if self.begun && slices.ContainsFunc(self.members, self.isMember) {
		return course{do: actFollow}
	}
	var waits *course
	for _, a := range answers {
		if !a.begun {
			continue
		}
		c := enter(self, a)
		if c.do != actWait {
			return c
		}
		waits = &c
	}
	switch {
	case waits != nil:
		return *waits
	case !slices.ContainsFunc(self.listed, func(v listedVoter) bool { return v.id == self.who.id }):
		return course{wait: "a node that belongs to a cluster"}
	}
	return begin(self, answers)
}

// isMember says that m is this very node.
func (h *hello) isMember(m metadata.Member) bool {
	return m.ID == h.who.id && m.Directory == h.who.directory && !m.Removed
}

// enter is the way into a cluster that has begun.
func enter(self, a *hello) course {
	at := slices.IndexFunc(a.members, func(m metadata.Member) bool { return m.ID == self.who.id })
	listed := slices.ContainsFunc(self.listed, func(v listedVoter) bool { return v.id == self.who.id })
	switch {
	case at >= 0 && (self.isMember(a.members[at]) || invariant.Seeded(invariant.WipedBelieved)):
		return course{do: actFollow}
	case at >= 0 && a.members[at].Removed && a.members[at].Directory == self.who.directory:
		return course{do: actRefuse, refuse: removedError(self.who, a.cluster)}
	case at >= 0 && !a.members[at].Removed && a.leader < 0:
		return course{wait: fmt.Sprintf("a leader: node %d does not know whether node %d is still a member", a.who.id, self.who.id)}
	case at >= 0 && !a.members[at].Removed:
		return course{do: actRefuse, refuse: wipedError(self.who, a.members[at].Directory, a.cluster, a.internal)}
	case listed && !slices.Equal(self.listed, a.listed):
		return course{do: actRefuse, refuse: fmt.Errorf("%w: node %d belongs to cluster %s and lists %s, this node lists %s\n%s", ErrVoters,
			a.who.id, a.cluster, listText(a.listed), listText(self.listed), "try: give both the same controller.quorum.voters, or add this node with --join")}
	}
	c := course{do: actJoin, via: a.who}
	if lead := slices.IndexFunc(a.members, func(m metadata.Member) bool { return m.ID == a.leader && !m.Removed }); lead >= 0 && a.leader != a.who.id {
		c.via, c.join = identity{a.leader, a.members[lead].Directory}, a.members[lead].Controller
	}
	return c
}

// begin is the way to a new cluster.
func begin(self *hello, answers []*hello) course {
	c := course{do: actBegin}
	var missing []string
	for _, v := range self.listed {
		if v.id == self.who.id {
			c.begin = append(c.begin, self.who)
			continue
		}
		at := slices.IndexFunc(answers, func(a *hello) bool { return a.who.id == v.id })
		switch {
		case at < 0:
			missing = append(missing, fmt.Sprintf("%d@%s", v.id, v.address))
		case !slices.Equal(answers[at].listed, self.listed):
			return course{do: actRefuse, refuse: fmt.Errorf("%w: node %d lists %s, this node lists %s\n%s", ErrVoters, v.id,
				listText(answers[at].listed), listText(self.listed), "try: give every node the same controller.quorum.voters")}
		case !answers[at].empty:
			return course{wait: fmt.Sprintf("node %d, which is not empty and in no cluster", v.id)}
		default:
			c.begin = append(c.begin, answers[at].who)
		}
	}
	switch {
	case len(missing) > 0:
		return course{wait: "an answer from " + strings.Join(missing, ", ")}
	case !self.empty:
		return course{wait: "the cluster to begin: this node is not empty"}
	case self.listed[0].id != self.who.id:
		return course{wait: fmt.Sprintf("node %d, the lowest listed, to begin the cluster", self.listed[0].id)}
	}
	return c
}

func listText(list []listedVoter) string {
	if len(list) == 0 {
		return "nobody"
	}
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d@%s", v.id, v.address)
	}
	return b.String()
}

// wipedError refuses a node whose id belongs to another disk. via is where a broker of the cluster answers, if that is known.
func wipedError(who identity, known metadata.DirectoryID, cluster string, via metadata.Endpoint) error {
	return fmt.Errorf("%w: cluster %s knows node %d with the directory %s, and this one is %s: its disk was wiped or replaced\n%s",
		ErrForeign, cluster, who.id, known, who.directory, replaceAdvice(who.id, known, via))
}

// removedError refuses a member that was taken out.
func removedError(who identity, cluster string) error {
	return fmt.Errorf("%w: cluster %s removed node %d with the directory %s\n%s", ErrRemoved, cluster, who.id, who.directory,
		"try: to let this machine join again: keeplog serve --join HOST:PORT --data-dir DIR, an empty one")
}

// replaceAdvice is how a member gets another disk: two commands, of which the second starts this node.
func replaceAdvice(id metadata.BrokerID, directory metadata.DirectoryID, via metadata.Endpoint) string {
	ask := ""
	if via.Host != "" {
		ask = " --brokers " + net.JoinHostPort(via.Host, strconv.Itoa(int(via.Port)))
	}
	return fmt.Sprintf("try: keeplog cluster remove %d --replace%s\nkeeplog serve --set keeplog.lost.directories=%s", id, ask, directory)
}
