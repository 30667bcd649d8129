package protocol

import "github.com/twmb/franz-go/pkg/kmsg"

// The shapes of what groups are asked.

func findCoordinator() []field {
	return []field{str().until(3), i8().from(1), list[string](str()).from(4).serves(300)}
}

func offsetCommit() []field {
	return []field{
		str(), i32(), str(), optStr().from(7), i64().from(2).until(4),
		each[kmsg.OffsetCommitRequestTopic](str().until(9), uuid().from(10),
			each[kmsg.OffsetCommitRequestTopicPartition](i32(), i64(), i32().from(6), optStr()).serves(300)).serves(200),
	}
}

func offsetFetch() []field {
	return []field{
		str().until(7),
		each[kmsg.OffsetFetchRequestTopic](str(), list[int32](i32()).serves(120)).orNull(2).until(7).serves(200),
		each[kmsg.OffsetFetchRequestGroup](str(), optStr().from(9), i32().from(9),
			each[kmsg.OffsetFetchRequestGroupTopic](str().until(9), uuid().from(10), list[int32](i32()).serves(120)).orNull(8).serves(200)).from(8).serves(300),
		bit().from(7),
	}
}

func joinGroup() []field {
	return []field{
		str(), i32(), i32().from(1), str(), optStr().from(5), str(),
		each[kmsg.JoinGroupRequestProtocol](str(), blobs()), optStr().from(8),
	}
}

func leaveGroup() []field {
	return []field{
		str(), str().until(2),
		each[kmsg.LeaveGroupRequestMember](str(), optStr(), optStr().from(5)).from(3).serves(250),
	}
}

func syncGroup() []field {
	return []field{
		str(), i32(), str(), optStr().from(3), optStr().from(5), optStr().from(5),
		each[kmsg.SyncGroupRequestGroupAssignment](str(), blobs()).serves(100),
	}
}

func offsetDelete() []field {
	return []field{
		str(),
		each[kmsg.OffsetDeleteRequestTopic](str(), each[kmsg.OffsetDeleteRequestTopicPartition](i32()).serves(150)).serves(200),
	}
}

func consumerGroupHeartbeat() []field {
	return []field{
		str(), str(), i32(), optStr(), optStr(), i32(), list[string](str()).orNull(0), optStr().from(1), optStr(),
		each[kmsg.ConsumerGroupHeartbeatRequestTopic](uuid(), list[int32](i32())).orNull(0),
	}
}
