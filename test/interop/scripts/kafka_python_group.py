"""kafka-python: a member of a group; prints "PARTITION OFFSET" of each record until SIGTERM, then commits and leaves."""
import signal
import sys
from kafka import KafkaConsumer

addr, topic, group = sys.argv[1:]
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
consumer = KafkaConsumer(topic, bootstrap_servers=addr, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=1000)
while not ended:
    for records in consumer.poll(timeout_ms=200).values():
        for m in records:
            print(m.partition, m.offset)
consumer.close()
