package invariant

// The seeded bugs of the metadata log.
const (
	FastPath      = "fast-path-heartbeats"    // the library takes heartbeats beside its main loop
	WipedBelieved = "wiped-disk-believed"     // a node whose id is a member's goes on as that member, whatever its directory
	NotVerified   = "leadership-not-verified" // a leader takes its word for its leadership
	LaneRepeats   = "proposal-applied-again"  // an entry that was proposed again is applied again
)
