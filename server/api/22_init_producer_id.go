package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

// idWait bounds the wait for a block of producer ids.
const idWait = 5 * time.Second

// initProducerID gives an id for an idempotent producer: a new one each time. Transactions are not served: code 53.
func (a *API) initProducerID(c *Call, req *kmsg.InitProducerIDRequest) {
	resp := &kmsg.InitProducerIDResponse{ProducerID: -1, ProducerEpoch: -1}
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		resp.ErrorCode = codeInvalidRequest
	case c.Version >= 3 && (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		resp.ErrorCode = codeInvalidRequest
	case req.TransactionalID != nil:
		resp.ErrorCode = codeTransactionalIDAuth
	default:
		id, err := a.ids.next(c.Ctx, a.allocateIDs)
		if err != nil {
			a.log.Warn("no producer id", "cause", err)
			resp.ErrorCode = codeCoordinatorLoading // retriable, as in Kafka
			break
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	c.reply(resp)
}

// allocateIDs gets a block from the controller.
func (a *API) allocateIDs(ctx context.Context) (controller.ProducerIDs, error) {
	ctx, cancel := context.WithTimeout(ctx, idWait)
	defer cancel()
	b, ok := a.o.Images.Image().Broker(a.o.NodeID)
	if !ok {
		return controller.ProducerIDs{}, fmt.Errorf("api: broker %d: %w", a.o.NodeID, controller.ErrBrokerNotRegistered)
	}
	return a.o.Controller.AllocateProducerIDs(ctx, b.ID, b.Epoch)
}

// producerIDs is the block of ids that this broker gives out. What is left of it at a stop is never used.
type producerIDs struct {
	mu      sync.Mutex
	block   controller.ProducerIDs // what is left; guarded by mu
	pending chan struct{}          // closed when the allocation under way ends; guarded by mu
}

// next takes an id. One caller allocates the next block, without the lock; the others wait for it.
func (p *producerIDs) next(ctx context.Context, allocate func(context.Context) (controller.ProducerIDs, error)) (int64, error) {
	for {
		p.mu.Lock()
		if p.block.Count > 0 {
			id := p.block.First
			p.block.First++
			p.block.Count--
			p.mu.Unlock()
			return id, nil
		}
		if wait := p.pending; wait != nil {
			p.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		done := make(chan struct{})
		p.pending = done
		p.mu.Unlock()
		b, err := allocate(ctx)
		p.mu.Lock()
		p.pending = nil
		if err == nil {
			p.block = b
		}
		p.mu.Unlock()
		close(done)
		if err != nil {
			return 0, err
		}
	}
}
