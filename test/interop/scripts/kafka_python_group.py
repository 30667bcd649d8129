"""kafka-python: reads records as a member of a group, prints them, commits, and leaves."""
import sys
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition

addr, topic, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = KafkaConsumer(topic, bootstrap_servers=addr, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False,
                         consumer_timeout_ms=20000)
for _ in range(n):
    m = next(consumer)
    print(m.value.decode())
part = TopicPartition(topic, 0)
consumer.commit({part: OffsetAndMetadata(m.offset + 1, "note")})
assert consumer.committed(part) == m.offset + 1, consumer.committed(part)
consumer.close(autocommit=False)
