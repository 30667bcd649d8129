package config

// clusterKeys are the broker settings of nodes that work together: replication, elections, calls.
func clusterKeys() []Key {
	return []Key{
		{Name: "inter.broker.listener.name", Type: String, Null: true, Doc: "Listener that brokers use among themselves. A cluster needs one that no client uses; a node alone does not open it."},
		{Name: "controller.listener.names", Type: List, Doc: "Listener of the metadata log's traffic, the first of the list. A cluster needs one; a node alone does not open it."},
		{Name: "controller.quorum.voters", Type: List, Valid: checked("ID@HOST:PORT, …", checkVoters), Doc: "Voters that start an empty cluster: ID@HOST:PORT of the listener in controller.listener.names, the same list on each. Empty, or this node only: a node alone."},
		{Name: "request.timeout.ms", Type: Int, Default: "30000", Valid: atLeast(0), Doc: "Longest time that a client's request waits for the controller, where another node is that."},
		{Name: "controlled.shutdown.enable", Type: Boolean, Default: "true", Doc: "Whether a broker hands over its leaderships before it stops."},
		{Name: "auto.leader.rebalance.enable", Type: Boolean, Default: "true", Doc: "Whether leadership moves back to preferred replicas by itself."},
		{Name: "leader.imbalance.check.interval.seconds", Type: Long, Default: "300", Valid: atLeast(1), Doc: "Time between two looks at the balance of leaders."},
		{Name: "replica.lag.time.max.ms", Type: Long, Default: "30000", Valid: atLeast(1), Doc: "Time after which a follower that has not caught up leaves the in-sync set."},
		{Name: "replica.fetch.wait.max.ms", Type: Int, Default: "500", Valid: atLeast(0), Doc: "Longest wait of a follower's fetch."},
		{Name: "replica.fetch.min.bytes", Type: Int, Default: "1", Valid: atLeast(0), Doc: "Bytes that a follower's fetch waits for."},
		{Name: "replica.fetch.max.bytes", Type: Int, Default: "1048576", Valid: atLeast(0), Doc: "Bytes of one partition in a follower's fetch."},
		{Name: "replica.fetch.response.max.bytes", Type: Int, Default: "10485760", Valid: atLeast(0), Doc: "Bytes of a follower's fetch in all."},
		{Name: "replica.fetch.backoff.ms", Type: Int, Default: "1000", Valid: atLeast(0), Doc: "Pause of a fetcher after an error."},
		{Name: "replica.selector.class", Type: String, Null: true, Doc: "RackAwareReplicaSelector lets consumers read from an in-sync replica in their rack; any other class, and none: from the leader."},
		{Name: "leader.replication.throttled.rate", Type: Long, Null: true, Valid: atLeast(0), Live: true, Undescribed: true, Doc: "Bytes in a second that this broker sends to throttled followers."},
		{Name: "follower.replication.throttled.rate", Type: Long, Null: true, Valid: atLeast(0), Live: true, Undescribed: true, Doc: "Bytes in a second that this broker takes as a throttled follower."},
	}
}
