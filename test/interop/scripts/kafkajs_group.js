// kafkajs: a member of a group; prints "PARTITION OFFSET" of each record until SIGTERM, then commits and leaves.
const { Kafka, logLevel } = require('kafkajs');
const [addr, topic, groupId] = process.argv.slice(2);

async function main() {
  const kafka = new Kafka({ clientId: 'interop', brokers: [addr], logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 1000, maxWaitTimeInMs: 500 });
  process.on('SIGTERM', () => consumer.disconnect().then(() => process.exit(0)));
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => { process.stdout.write(`${partition} ${message.offset}\n`); },
  });
}

main().catch((e) => { console.error(e); process.exit(1); });
