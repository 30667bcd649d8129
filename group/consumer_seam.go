package group

// loadConsumer makes the core of a consumer group from its entries.
func loadConsumer(group string, _ []Entry, _ Env) (Core, error) {
	return nil, newerEntry(group, headKey)
}

// joinConsumer answers a consumer heartbeat that meets a classic core, which may be one that was just made because the
// group does not exist.
func joinConsumer(_ *classic, r *ConsumerHeartbeatRequest, env Env) Effects {
	return Effects{Replies: []Reply{{env.Ticket, &ConsumerHeartbeatResponse{Err: ErrUnsupportedVersion, MemberID: r.MemberID}}}}
}
