package config

// ownKeys are the settings that Kafka has no name for.
func ownKeys() []Key {
	return []Key{
		{Name: "keeplog.admin.listener", Type: String, Valid: checked("HOST:PORT or empty", checkHostPort), Status: NoEffect, Reason: "this version opens no admin port", Doc: "Address of the admin HTTP port: health, metrics, console. Empty opens none."},
		{Name: "keeplog.log.format", Type: String, Default: "auto", Valid: oneOf("auto", "text", "json"), Doc: "Form of the server's own log lines. auto: text on a terminal, JSON otherwise."},
		{Name: "keeplog.log.level", Type: String, Default: "info", Valid: oneOf("debug", "info", "warn", "error"), Doc: "Least level of the server's own log lines."},
		{Name: "keeplog.disk.reserve.bytes", Type: Long, Default: "-1", Valid: atLeast(-1), Doc: "Free space below which appends and new topics are refused, so that reads and deletes go on. -1: the larger of 2 % and 256 MiB, at most an eighth of the file system."},
		{Name: "keeplog.records.validate", Type: Boolean, Default: "true", Doc: "Whether compressed batches are unpacked and every record in them checked before they are stored. false checks the batch header and checksum only."},
		{Name: "keeplog.decompressed.max.bytes", Type: Int, Default: "134217728", Valid: atLeast(1024), Doc: "Largest size of one batch after decompression, whatever a topic allows; a batch above it is refused."},
		{Name: "keeplog.memory.max.bytes", Type: Long, Default: "536870912", Valid: atLeast(16 << 20), Doc: "Memory that requests in flight may hold together; reading waits when it is used up."},
		{Name: "keeplog.request.max.bytes", Type: Int, Default: "8388608", Valid: atLeast(1024), Doc: "Largest request other than produce; those are bounded by socket.request.max.bytes."},
		{Name: "keeplog.join", Type: List, Valid: checked("HOST:PORT, …", checkAddresses), Doc: "Members of a running cluster, HOST:PORT of their listener in controller.listener.names, that this node joins at its first start. It stays in the configuration of a node that controller.quorum.voters does not name: by it the node knows that it is not alone."},
		{Name: "keeplog.lost.directories", Type: List, Doc: "Ids (directory.id in meta.properties) of data directories that this node had and that are gone for ever. Without it a node does not start when one of its directories is not in log.dirs; with it the partitions that were there begin anew, or are fetched from other replicas."},
		{Name: "keeplog.broker.drained", Type: Boolean, Default: "false", Live: true, Doc: "Whether this broker is being emptied: it is given no new replicas, and leads only what no other in-sync replica can lead. Set on one broker by `keeplog cluster drain`."},
		{Name: "keeplog.shutdown.timeout.ms", Type: Int, Default: "10000", Valid: atLeast(0), Doc: "Time that a clean stop waits for requests under way before it closes their connections."},
	}
}
