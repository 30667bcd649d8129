"""confluent-kafka: a member of a group; prints "PARTITION OFFSET" of each record until SIGTERM, then commits and leaves."""
import signal
import sys
from confluent_kafka import Consumer, KafkaException

addr, topic, group = sys.argv[1:]
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
consumer = Consumer({"bootstrap.servers": addr, "group.id": group, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 1000})
consumer.subscribe([topic])
while not ended:
    for m in consumer.consume(100, timeout=0.2):
        if m.error():
            raise KafkaException(m.error())
        print(m.partition(), m.offset())
consumer.close()
