package invariant

// The seeded bugs of the coordinator of groups.
const (
	AnsweredEarly = "commit-answered-early"      // a commit is answered before it is known to be committed
	AssignedTwice = "generation-assigned-twice"  // a leader that asks again changes the assignment of its generation
	OldIDServed   = "replaced-member-not-fenced" // the old id of a static member that was replaced is served like the new one
)
