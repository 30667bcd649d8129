"""confluent-kafka: writes 300 records in each codec, idempotent, reads them by assignment from the start, an offset, a time."""
import sys
from confluent_kafka import Consumer, Producer, TopicPartition, KafkaException

addr, topic = sys.argv[1:]
want = []
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    producer = Producer({"bootstrap.servers": addr, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
    failed = []
    for i in range(300):
        value = ("%s %d " % (codec, i) + "abc" * (i % 50)).encode()
        producer.produce(topic, key=b"k%d" % i, value=value, partition=0, headers={"h": b"%d" % i},
                         on_delivery=lambda err, _: failed.append(err) if err else None)
        want.append(value)
    assert producer.flush(20) == 0 and not failed, failed

consumer = Consumer({"bootstrap.servers": addr, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"})
low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
assert (low, high) == (0, len(want)), (low, high)


def read(offset, n):
    consumer.assign([TopicPartition(topic, 0, offset)])
    got = []
    for _ in range(200):
        for m in consumer.consume(500, timeout=0.2):
            if m.error():
                raise KafkaException(m.error())
            got.append(m.value())
        if len(got) >= n:
            return got
    raise SystemExit("read %d records, want %d" % (len(got), n))


assert read(0, len(want)) == want
assert read(777, len(want) - 777) == want[777:]
at = consumer.offsets_for_times([TopicPartition(topic, 0, 1000)], timeout=10)[0]
assert at.offset == 0, at
consumer.close()
print("OK", len(want))
