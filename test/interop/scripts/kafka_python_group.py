"""kafka-python: subscribes as a member of a group; the first read fails."""
import sys
from kafka import KafkaConsumer

addr, topic = sys.argv[1:]
for m in KafkaConsumer(topic, bootstrap_servers=addr, group_id="g", consumer_timeout_ms=20000):
    print(m)
