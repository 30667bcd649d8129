package config

// replicaKeys are the broker settings of replication and liveness.
func replicaKeys() []Key {
	return []Key{
		{Name: "replica.lag.time.max.ms", Type: Long, Default: "30000", Doc: "Time after which a follower that has not caught up leaves the in-sync set."},
	}
}
