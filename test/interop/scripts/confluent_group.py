"""confluent-kafka: subscribes as a member of a group and prints the first thing that it hears."""
import sys
from confluent_kafka import Consumer

addr, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": addr, "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
m = consumer.poll(20)
print("nothing" if m is None else m.error())
consumer.close()
