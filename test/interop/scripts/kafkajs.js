// kafkajs: its producer (plain and gzip, idempotent too) and its admin client.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs');
const assert = require('assert');
const [addr, topic] = process.argv.slice(2);

async function main() {
  const kafka = new Kafka({ clientId: 'interop', brokers: [addr], logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  const made = topic + '.made';
  assert(await admin.createTopics({ topics: [{ topic: made, numPartitions: 3 }] }));
  const described = await admin.fetchTopicMetadata({ topics: [made] });
  assert.strictEqual(described.topics[0].partitions.length, 3);
  await admin.createPartitions({ topicPartitions: [{ topic: made, count: 5 }] });
  assert.strictEqual((await admin.fetchTopicMetadata({ topics: [made] })).topics[0].partitions.length, 5);
  const configs = await admin.describeConfigs({ resources: [{ type: 2, name: made }] });
  assert(configs.resources[0].configEntries.length > 10);
  await admin.alterConfigs({ resources: [{ type: 2, name: made, configEntries: [{ name: 'retention.ms', value: '60000' }] }] });

  let n = 0;
  for (const [compression, idempotent] of [[CompressionTypes.None, false], [CompressionTypes.GZIP, false], [CompressionTypes.GZIP, true]]) {
    const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 });
    await producer.connect();
    const messages = [];
    for (let i = 0; i < 100; i++, n++) messages.push({ key: 'k' + n, value: 'v' + n, partition: 0 });
    await producer.send({ topic, compression, acks: -1, messages });
    await producer.disconnect();
  }
  const offsets = await admin.fetchTopicOffsets(topic);
  assert.strictEqual(offsets[0].high, '300');
  assert.strictEqual((await admin.fetchTopicOffsetsByTimestamp(topic, 1000))[0].offset, '0');
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '0' }] });
  assert((await admin.listTopics()).includes(topic));
  const cluster = await admin.describeCluster();
  assert.strictEqual(cluster.brokers.length, 1);
  await admin.deleteTopics({ topics: [made] });
  await admin.disconnect();
  console.log('OK');
}

main().catch((e) => { console.error(e); process.exit(1); });
