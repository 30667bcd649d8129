package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// keptLinks is how many hashes of the chain are remembered: more than the commands between a checkpoint and the image it is of.
const keptLinks = 16384

// chain remembers the hashes of the newest images, to compare them with those of others.
type chain struct {
	mu    sync.Mutex
	links map[uint64][32]byte
	order []uint64
}

func (c *chain) add(img *metadata.Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil {
		c.links = map[uint64][32]byte{}
	}
	c.links[img.Index()] = img.Chain()
	if c.order = append(c.order, img.Index()); len(c.order) > keptLinks {
		delete(c.links, c.order[0])
		c.order = c.order[1:]
	}
}

// at is the hash of the image at an index, if it is remembered.
func (c *chain) at(index uint64) ([32]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash, ok := c.links[index]
	return hash, ok
}

// compare looks at a checkpoint. An image that is not remembered any more cannot be compared.
func (c *chain) compare(p metadata.ChainCheckpoint) error {
	if own, ok := c.at(p.Index); ok && own != p.Hash {
		return astray(p.Index, own, p.Hash)
	}
	return nil
}

func astray(index uint64, own, other [32]byte) error {
	return fmt.Errorf("%w: its history up to entry %d has hash %x, that of the others %x", ErrAstray, index, own[:8], other[:8])
}

// checkpoint has the members compare their histories with this leader's, when something was applied since the last time: who
// has another one stops. Before that the leader asks the others for theirs: where most voters agree on another history than
// its own, it is the leader that has gone astray.
func (s *peers) checkpoint(ctx context.Context, term uint64) error {
	q := s.q
	// What is compared was the image a moment ago, so that the others have it.
	img := s.seenImage
	s.seenImage = q.Image()
	if img == nil || img.Index() <= s.checked || time.Since(s.lastCheck) < q.o.Timing.Checkpoint {
		return nil
	}
	s.lastCheck = time.Now()
	others, all := map[[32]byte]int{}, 0
	for _, m := range q.Status().Members {
		if !m.Voter {
			continue
		}
		all++
		if m.ID == q.o.Node {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, max(q.o.Timing.Election, time.Second))
		request := s.self()
		request.about = img.Index()
		h, err := s.send(limited, identity{m.ID, m.Directory}, request)
		cancel()
		if err == nil && h.linked && h.about == img.Index() {
			others[h.link]++
		}
	}
	for hash, n := range others {
		if hash != img.Chain() && n > all/2 {
			err := astray(img.Index(), img.Chain(), hash)
			q.fail(err)
			return err
		}
	}
	_, results, err := q.ProposeAt(ctx, term, []metadata.Record{metadata.ChainCheckpoint{Index: img.Index(), Hash: img.Chain()}})
	if err != nil {
		return err
	}
	s.checked = q.Image().Index()
	return results[0].Err()
}
