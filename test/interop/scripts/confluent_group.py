"""confluent-kafka: reads records as a member of a group, prints them, commits, and leaves."""
import sys
from confluent_kafka import Consumer, KafkaException, TopicPartition

addr, topic, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": addr, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False})
consumer.subscribe([topic])
for _ in range(n):
    m = consumer.poll(20)
    if m is None or m.error():
        raise KafkaException(m and m.error())
    print(m.value().decode())
consumer.commit(offsets=[TopicPartition(topic, 0, m.offset() + 1)], asynchronous=False)
at = consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].offset
assert at == m.offset() + 1, at
consumer.close()
