package invariant

// The seeded bugs of consumer groups (KIP-848).
const (
	TwoOwners      = "partition-two-owners"    // a partition is given out while another member still holds it
	RevokedOnTrust = "revoked-before-reported" // what a member was told to give up counts as free before it said that it did
	EpochReused    = "group-epoch-not-raised"  // a member that leaves does not raise the group's epoch
	ForgetRevoking = "revoking-not-stored"     // a new coordinator does not know what members still have to give up
)
