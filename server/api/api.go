package api

import (
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/keeplog/keeplog/protocol"
)

// Options are what an API works with. All but Loggers and Lag are needed.
type Options struct {
	NodeID     int32
	Images     Images
	Replicas   Replicas
	Controller Controller
	Groups     Groups
	Dirs       Dirs
	Settings   Settings
	Loggers    Loggers
	// Lag says how far groups are behind; nil: nobody does.
	Lag Lag
	// Cluster reaches the controller when another node is it; nil on a node alone, which always is.
	Cluster Cluster
	// Quorum is the members of the metadata log; nil is this node alone.
	Quorum Quorum
	// Now is the wall clock.
	Now    func() time.Time
	Logger *slog.Logger
}

// API answers requests. It is safe for concurrent use.
type API struct {
	o         Options
	log       *slog.Logger
	protocol  *protocol.Table
	rows      map[int16]row
	sessions  *sessionCache
	purgatory *purgatory
	ids       producerIDs
	// room is the memory, in bytes, that requests which take much of it share; room for no more than capacity.
	room     *semaphore.Weighted
	capacity int64
}

const (
	// costlyFrame is the size of the smallest body that may cost costly or more.
	costlyFrame = 16 << 10
	// costly is what a request may take, in bytes, without asking for room.
	costly = 1 << 20
)

// New makes an API. Close ends its timer goroutine.
func New(o Options) *API {
	a := &API{o: o, log: o.Logger}
	if a.o.Loggers == nil {
		a.o.Loggers = noLoggers{}
	}
	a.protocol, a.rows = newTables()
	a.sessions = newSessionCache(o.Settings.Static().Int("max.incremental.fetch.session.cache.slots"))
	a.purgatory = newPurgatory()
	a.capacity = o.Settings.Static().Int64("keeplog.memory.max.bytes")
	a.room = semaphore.NewWeighted(a.capacity)
	return a
}

// Close answers the fetches that wait and ends the timer.
func (a *API) Close() { a.purgatory.close() }

// Drain answers the fetches that wait, and from now on every fetch at once.
func (a *API) Drain() { a.purgatory.drain() }

// Plan says how calls of a key and version are treated on a connection; ok is false when they are not served there. ApiVersions is served in
// every version: a client from the future is told the range.
func (a *API) Plan(c *Conn, key, version int16) (Plan, bool) {
	p, ok := a.protocol.Lookup(key)
	if !ok || p.Internal && !c.Internal {
		return Plan{}, false
	}
	plan := a.rows[key].plan
	plan.Overlap = plan.Overlap || c.Internal && key == protocol.KeyFetch // a follower has two in flight
	return plan, key == protocol.KeyApiVersions || version >= p.Min && version <= p.Max
}

// Serve starts a call. Key, Version and Frame are set, and Plan has allowed them.
func (a *API) Serve(c *Call) {
	h, err := a.protocol.ParseHeader(c.Frame)
	c.header, c.api, c.weight, c.asked = h, a, 0, a.o.NodeID
	c.ClientID = h.ClientID
	if err == nil {
		err = a.weigh(c)
	}
	switch {
	case errors.Is(err, protocol.ErrUnsupportedVersion) && h.Key == protocol.KeyApiVersions:
		a.apiVersionsUnknown(c)
	case err != nil:
		c.close(err)
	case a.rows[h.Key].forward && !a.rows[h.Key].own && a.forwarded(c):
	default:
		a.rows[h.Key].serve(a, c, h.Body)
	}
}

// weigh waits for room where decoding and answering a call takes much memory. The room is given back with the answer.
func (a *API) weigh(c *Call) error {
	if len(c.header.Body) < costlyFrame {
		return nil
	}
	_, cost, err := a.protocol.Check(c.Key, c.Version, c.header.Body)
	if err != nil || cost < costly {
		return err
	}
	cost = min(cost, a.capacity)
	if err := a.room.Acquire(c.Ctx, cost); err != nil {
		return err
	}
	c.weight = cost
	return nil
}
