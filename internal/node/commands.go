package node

import (
	"context"
	"fmt"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
)

// submit carries a command of this node's coordinators to the broker that leads the metadata log.
func (n *Node) submit(ctx context.Context, leader metadata.BrokerID, command []byte) (metadata.Outcome, error) {
	if n.cluster == nil {
		return metadata.Outcome{}, errNoController
	}
	b, err := n.cluster.peer.Submit(ctx, leader, command)
	if err != nil {
		return metadata.Outcome{}, err
	}
	out, err := metadata.DecodeOutcome(b)
	if err != nil {
		return metadata.Outcome{}, fmt.Errorf("%w: node %d: %w", peer.ErrProtocol, leader, err)
	}
	return out, nil
}
