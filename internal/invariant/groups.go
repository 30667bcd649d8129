package invariant

// The seeded bugs of groups.
const (
	OldShardAccepted   = "old-shard-accepted"      // what a coordinator proposes that has lost its shard is applied
	CommitBeforeQuorum = "commit-before-committed" // a proposal is answered before its entry is committed
)
