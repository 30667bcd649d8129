package config

// serverKeys are the broker settings of identity, listeners, connections and requests.
func serverKeys() []Key {
	const maxInt = "2147483647"
	return []Key{
		{Name: "node.id", Type: Int, Default: "1", Kafka: "-1", Valid: atLeast(0), Doc: "Number of this node in the cluster, from 0 up. It must not change over the life of a data directory."},
		{Name: "broker.id", Type: Int, Default: "1", Kafka: "-1", Valid: atLeast(0), Doc: "Older name of node.id."},
		{Name: "broker.rack", Type: String, Null: true, Doc: "Rack or zone of this broker, told to clients and used to spread replicas."},

		{Name: "listeners", Type: List, Default: "PLAINTEXT://127.0.0.1:9092", Kafka: "PLAINTEXT://:9092", Valid: checked("NAME://HOST:PORT, …", checkListeners), Doc: "Addresses this broker listens on. A node alone opens those that clients are told of, and none of controller.listener.names."},
		{Name: "advertised.listeners", Type: List, Null: true, Valid: checked("NAME://HOST:PORT, …", checkListeners), Doc: "Addresses told to clients. Not set: listeners. Needed where a listener binds to all interfaces."},
		{Name: "listener.security.protocol.map", Type: String, Default: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", Valid: checked("NAME:PROTOCOL, …", checkProtocolMap), Doc: "Security protocol of each listener name."},
		{Name: "security.inter.broker.protocol", Type: String, Default: "PLAINTEXT", Valid: oneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), Status: Refused, Reason: "only PLAINTEXT is served", Harmless: []string{"PLAINTEXT"}, Doc: "Security protocol among brokers, where inter.broker.listener.name is not set."},
		{Name: "process.roles", Type: List, Default: "broker,controller", Kafka: "", Valid: oneOf("broker", "controller"), Status: Refused, Reason: "every node is a broker and can be a voter", Harmless: []string{"broker", "controller,broker"}, Doc: "Roles of this process."},

		{Name: "socket.request.max.bytes", Type: Int, Default: "104857600", Valid: atLeast(1), Doc: "Largest produce request. Other requests are bounded by keeplog.request.max.bytes."},
		{Name: "socket.send.buffer.bytes", Type: Int, Default: "102400", Status: NoEffect, Reason: "socket buffers are left to the system, which sizes them as a connection needs", Doc: "SO_SNDBUF of a connection; -1 leaves it to the system."},
		{Name: "socket.receive.buffer.bytes", Type: Int, Default: "102400", Status: NoEffect, Reason: "socket buffers are left to the system, which sizes them as a connection needs", Doc: "SO_RCVBUF of a connection; -1 leaves it to the system."},
		{Name: "max.connections", Type: Int, Default: maxInt, Live: true, Valid: atLeast(0), Doc: "Connections at once."},
		{Name: "max.connections.per.ip", Type: Int, Default: maxInt, Live: true, Valid: atLeast(0), Doc: "Connections at once from one address."},
		{Name: "max.connections.per.ip.overrides", Type: String, Live: true, Valid: checked("HOST:COUNT, …", checkOverrides), Doc: "Limits for single addresses: HOST:COUNT."},
		{Name: "max.connection.creation.rate", Type: Int, Default: maxInt, Live: true, Valid: atLeast(1), Status: NoEffect, Reason: "connections are bounded in number (max.connections, max.connections.per.ip), not in rate", Doc: "New connections in a second."},
		{Name: "connections.max.idle.ms", Type: Long, Default: "600000", Doc: "Idle time after which a connection is closed; negative never."},

		{Name: "num.partitions", Type: Int, Default: "1", Valid: atLeast(1), Doc: "Partitions of a topic made without a count."},
		{Name: "default.replication.factor", Type: Int, Default: "1", Valid: atLeast(1), Reason: "not set: 3, or the number of brokers where there are fewer", Doc: "Replicas of a topic made without a count."},
		{Name: "min.insync.replicas", Type: Int, Default: "1", Live: true, Valid: atLeast(1), Reason: "not set: 2 for topics with three or more replicas, else 1", Doc: "Replicas in sync, the leader among them, that acks=all needs."},
		{Name: "auto.create.topics.enable", Type: Boolean, Default: "true", Doc: "Whether naming a missing topic creates it."},
		{Name: "delete.topic.enable", Type: Boolean, Default: "true", Doc: "Whether topics can be deleted."},
		{Name: "max.request.partition.size.limit", Type: Int, Default: "2000", Valid: atLeast(1), Doc: "Most partitions in one DescribeTopicPartitions response."},
		{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", Live: true, Doc: "Whether a replica outside the in-sync set may lead when no other is left; that loses acknowledged records."},

		{Name: "super.users", Type: String, Null: true, Status: NoEffect, Undescribed: true, Reason: "access control lists are not enforced yet", Doc: "Principals that may do everything."},
		{Name: "allow.everyone.if.no.acl.found", Type: Boolean, Default: "false", Status: NoEffect, Undescribed: true, Reason: "access control lists are not enforced yet", Doc: "Whether a resource without a rule is open to all."},
		{Name: "num.replica.alter.log.dirs.threads", Type: Int, Null: true, Valid: atLeast(1), Doc: "Replicas that are copied to other data directories at a time. Not set: as many as there are directories."},
		{Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: Long, Null: true, Valid: atLeast(0), Live: true, Undescribed: true, Doc: "Bytes in a second for moves between data directories, all together."},

		{Name: "fetch.max.bytes", Type: Int, Default: "57671680", Valid: atLeast(1024), Doc: "Most bytes in one fetch response."},
		{Name: "max.incremental.fetch.session.cache.slots", Type: Int, Default: "1000", Valid: atLeast(0), Doc: "Fetch sessions kept at once."},
	}
}
