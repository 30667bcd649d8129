package invariant

// The seeded bugs of the decisions about a cluster.
const (
	StaleInSync      = "stale-in-sync-change"      // a leader's wish from before the partition changed is accepted
	OldIncarnation   = "old-incarnation-joins"     // a replica joins the in-sync set with the broker epoch of its last life
	FencedJoins      = "fenced-replica-joins"      // a fenced broker joins the in-sync set
	OldEpochResumed  = "old-leader-epoch-resumed"  // a restarted broker leads on in the epoch of its last life
	RestartEmptiesIt = "restart-empties-in-sync"   // an unclean restart costs the last replica its place in the in-sync set
	LostStays        = "lost-replica-eligible"     // a replica that misses data stays eligible
	BehindEligible   = "behind-replica-eligible"   // who left while enough were in sync is eligible later
	DropsTooEarly    = "reassigned-too-early"      // a reassignment ends before the replicas that come are in sync
	PauseFencesAll   = "pause-fences-everyone"     // a controller that was paused takes its silence for the brokers'
	LeaderDropped    = "reassigned-leader-dropped" // a leader that a reassignment drops leaves the in-sync set before it has heard of it
)
