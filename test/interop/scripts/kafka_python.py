"""kafka-python: writes 300 records in each codec, reads them by assignment from the start, an offset and a time."""
import sys
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

addr, topic = sys.argv[1:]
want = []
for codec in (None, "gzip", "snappy", "lz4", "zstd"):
    try:
        producer = KafkaProducer(bootstrap_servers=addr, compression_type=codec, acks="all", linger_ms=5)
    except (AssertionError, ImportError, RuntimeError) as e:  # the codec's library is not installed here
        print("without", codec, e)
        producer = KafkaProducer(bootstrap_servers=addr, acks="all", linger_ms=5)
    futures = []
    for i in range(300):
        value = ("%s %d " % (codec, i) + "abc" * (i % 50)).encode()
        futures.append(producer.send(topic, key=b"k%d" % i, value=value, partition=0, headers=[("h", b"%d" % i)]))
        want.append(value)
    for n, f in enumerate(futures):
        m = f.get(timeout=20)
        assert m.offset == len(want) - 300 + n, (m, n)
    producer.close()

consumer = KafkaConsumer(bootstrap_servers=addr, enable_auto_commit=False, group_id=None, consumer_timeout_ms=15000)
tp = TopicPartition(topic, 0)
consumer.assign([tp])
assert consumer.beginning_offsets([tp])[tp] == 0
assert consumer.end_offsets([tp])[tp] == len(want)


def read(n):
    got = []
    for m in consumer:
        got.append(m.value)
        if len(got) == n:
            return got
    raise SystemExit("read %d records, want %d" % (len(got), n))


consumer.seek_to_beginning(tp)
assert read(len(want)) == want
consumer.seek(tp, 777)
assert read(len(want) - 777) == want[777:]
at = consumer.offsets_for_times({tp: 1000})[tp]
assert at.offset == 0, at
consumer.close()
print("OK", len(want))
