package quorum

import (
	"fmt"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// checkAlone refuses a store that needs other members, for a node that has no listener for any: it would wait for them for ever. A
// node that was removed, and is started without --join, learns here that it was.
func (q *Quorum) checkAlone(servers []raft.Server) error {
	if q.peers != nil || len(servers) == 0 {
		return nil
	}
	var others []string
	own := false
	for _, s := range servers {
		if s.ID == serverID(q.o.Node) {
			own = s.Suffrage == raft.Voter
			continue
		}
		others = append(others, string(s.ID))
	}
	if own && len(others) == 0 {
		return nil
	}
	cluster := q.o.ClusterID
	if id := q.Image().ClusterID(); id != "" {
		cluster = id
	}
	if q.removedByLog() {
		return removedError(q.self(), cluster)
	}
	with := "this node and no other one that could lead"
	if len(others) > 0 {
		with = "node " + strings.Join(others, ", node ")
	}
	return fmt.Errorf("%w: the metadata log in %s is that of cluster %s with %s, and neither controller.quorum.voters nor --join names another node\n"+
		"try: keeplog serve --join HOST:PORT, the CONTROLLER listener of a member that runs", ErrAlone, q.o.Dir, cluster, with)
}

// removedByLog says whether this node's directory was removed, by the image or by the log after it, which has not been applied yet.
func (q *Quorum) removedByLog() bool {
	removed := false
	for _, m := range q.Image().RemovedMembers() {
		removed = removed || m.ID == q.o.Node && m.Directory == q.o.Directory
	}
	first, err := q.store.FirstIndex()
	if err != nil || first == 0 {
		return removed
	}
	last, err := q.store.LastIndex()
	for i := first; err == nil && i <= last; i++ {
		var l raft.Log
		if err = q.store.GetLog(i, &l); err != nil || l.Type != raft.LogCommand {
			continue
		}
		c, err := metadata.DecodeCommand(l.Data)
		if err != nil {
			continue
		}
		for _, g := range c.Groups {
			for _, rec := range g.Records {
				if m, ok := rec.(metadata.MemberChanged); ok && m.ID == q.o.Node && m.Directory == q.o.Directory {
					removed = m.Removed
				}
			}
		}
	}
	return removed
}
