package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/record"
)

// produceCase is a records field and the topic it is sent to.
type produceCase struct {
	name, topic string
	records     []byte
}

type edit func(b []byte)

func put(at int, v ...byte) edit { return func(b []byte) { copy(b[at:], v) } }

// sealed makes a batch of n records, lets edits change it, and gives it a right CRC.
func sealed(codec record.Codec, n int, edits ...edit) []byte {
	o := record.NewOptions()
	o.Codec, o.Level = codec, record.DefaultLevel(codec)
	builder := record.NewBuilder(o)
	for i := range n {
		builder.Append(base+int64(i), []byte("key"), []byte("value"))
	}
	b, err := builder.Batch(record.NewCodecs())
	if err != nil {
		panic(err)
	}
	for _, e := range edits {
		e(b)
	}
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// base is the time of all records: long ago, which every topic takes.
const base = 1_700_000_000_000

// raw makes a batch whose records are the given bytes.
func raw(count byte, records ...byte) []byte {
	b := append(sealed(record.None, 1)[:record.HeaderSize:record.HeaderSize], records...)
	b[26], b[60] = count-1, count
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// rec makes a record without headers.
func rec(body ...byte) []byte { return append([]byte{byte(2 * len(body))}, body...) }

func cases() []produceCase {
	ok := sealed(record.None, 2)
	ff := bytes.Repeat([]byte{0xff}, 8)
	all := []produceCase{
		{"valid", "golden", ok},
		{"empty", "golden", []byte{}},
		{"null", "golden", nil},
		{"16 bytes", "golden", ok[:16]},
		{"cut", "golden", ok[:len(ok)-1]},
		{"two batches", "golden", append(bytes.Clone(ok), ok...)},
		{"magic 0", "golden", sealed(record.None, 1, put(16, 0))},
		{"magic 1", "golden", sealed(record.None, 1, put(16, 1))},
		{"magic 3", "golden", sealed(record.None, 1, put(16, 3))},
		{"length 48", "golden", sealed(record.None, 1, put(8, 0, 0, 0, 48))},
		{"length -1", "golden", sealed(record.None, 1, put(8, ff[:4]...))},
		{"base offset 1", "golden", sealed(record.None, 1, put(7, 1))},
		{"crc", "golden", func() []byte { b := bytes.Clone(ok); b[len(b)-1] ^= 1; return b }()},
		{"count 0", "golden", sealed(record.None, 2, put(60, 0))},
		{"count -1", "golden", sealed(record.None, 2, put(57, ff[:4]...))},
		{"count too low", "golden", sealed(record.None, 2, put(60, 1))},
		{"count too high", "golden", sealed(record.None, 2, put(60, 3))},
		{"last delta -1", "golden", sealed(record.None, 2, put(23, ff[:4]...))},
		{"three announced", "golden", sealed(record.None, 2, put(60, 3), put(26, 2))},
		{"one announced", "golden", sealed(record.None, 2, put(60, 1), put(26, 0))},
		{"control", "golden", sealed(record.None, 1, put(22, 0x20))},
		{"producer without sequence", "golden", sealed(record.None, 1, put(43, 0, 0, 0, 0, 0, 0, 0, 9), put(51, 0, 0))},
		{"not snappy", "golden", sealed(record.None, 1, put(22, 2))},
		{"not lz4", "golden", sealed(record.None, 1, put(22, 3))},
		{"max timestamp too low", "golden", sealed(record.None, 2, put(35, 0, 0, 0, 0, 0, 0, 0, 1))},
		{"append time bit", "golden", sealed(record.None, 2, put(22, 8))},
		{"append time bit, time -1", "golden", sealed(record.None, 1, put(22, 8), put(27, ff...), put(35, ff...))},
		{"append time bit, append time topic", "appendtime", sealed(record.None, 2, put(22, 8))},
		{"append time topic", "appendtime", ok},
		{"delete horizon bit", "golden", sealed(record.None, 2, put(22, 0x40))},
		{"unused bit", "golden", sealed(record.None, 2, put(22, 0x80))},
		{"future", "golden", sealed(record.None, 2, put(27, 0, 0, 4, 0))},
		{"time -1", "golden", sealed(record.None, 1, put(27, ff...), put(35, ff...))},
		{"time -2", "golden", sealed(record.None, 1, put(27, append(bytes.Clone(ff[:7]), 0xfe)...))},
		{"null key", "compacted", raw(2, append(rec(0, 0, 0, 1, 1, 0), rec(0, 0, 2, 0, 1, 0)...)...)},
		{"null keys", "compacted", raw(3, slices.Concat(rec(0, 0, 0, 1, 1, 0), rec(0, 0, 2, 0, 1, 0), rec(0, 0, 4, 1, 1, 0))...)},
		{"offset delta 5", "golden", raw(1, rec(0, 0, 10, 1, 1, 0)...)},
		{"offset deltas equal", "golden", raw(2, append(rec(0, 0, 0, 1, 1, 0), rec(0, 0, 0, 1, 1, 0)...)...)},
		{"record attributes", "golden", raw(1, rec(0x55, 0, 0, 1, 1, 0)...)},
	}
	for _, c := range []record.Codec{record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		all = append(all, produceCase{c.String(), "golden", sealed(c, 2)},
			produceCase{c.String() + ", three announced", "golden", sealed(c, 2, put(60, 3), put(26, 2))},
			produceCase{c.String() + ", one announced", "golden", sealed(c, 2, put(60, 1), put(26, 0))})
	}
	for name, r := range map[string][]byte{
		"empty record": {0}, "negative record length": {1}, "record past the end": {20, 0, 0, 0, 1, 1, 0},
		"endless varint": {0x80, 0x80, 0x80, 0x80, 0x80, 0}, "key length -2": rec(0, 0, 0, 3, 1, 0),
		"key past the end": rec(0, 0, 0, 20, 1, 0), "value length -2": rec(0, 0, 0, 1, 3, 0),
		"value past the end": rec(0, 0, 0, 1, 20, 0), "negative header count": rec(0, 0, 0, 1, 1, 1),
		"header count past the end": rec(0, 0, 0, 1, 1, 4, 0, 1), "null header key": rec(0, 0, 0, 1, 1, 2, 1, 1),
		"header key past the end": rec(0, 0, 0, 1, 1, 2, 8, 1), "rest in the record": rec(0, 0, 0, 1, 1, 0, 9),
		"rest after the records": append(rec(0, 0, 0, 1, 1, 0), 9),
	} {
		all = append(all, produceCase{name, "golden", raw(1, r...)})
	}
	slices.SortStableFunc(all[len(all)-14:], func(a, b produceCase) int { return strings.Compare(a.name, b.name) })
	return all
}

// produceCases sends each case on a connection of its own and writes down the answers.
func (s *session) produceCases(address string) error {
	var out strings.Builder
	fmt.Fprintf(&out, "# What Kafka 4.4 answers to Produce version 9: name | topic | records | error | indexes of refused records | time the records got\n")
	fmt.Fprintf(&out, "# error -: the connection was closed. Topics: golden plain, compacted, appendtime. Codes: 0 stored, -1 unknown, 2 corrupt, 32 timestamp, 87 invalid record.\n")
	for _, c := range cases() {
		answer, err := s.produceCase(address, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(&out, "%s | %s | %s | %s\n", c.name, c.topic, hex.EncodeToString(c.records), answer)
	}
	return keep("produce-cases.txt", out.String())
}

func (s *session) produceCase(address string, c produceCase) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	one := &session{conn: conn, table: s.table}
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, -1, 5000
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: c.topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: c.records}}}}
	resp, err := one.ask(r)
	if err != nil {
		return "- | | ", nil
	}
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	var indexes []string
	for _, e := range p.ErrorRecords {
		indexes = append(indexes, fmt.Sprint(e.RelativeOffset))
	}
	stamped := "create time"
	if p.LogAppendTime >= 0 {
		stamped = "append time"
	}
	return fmt.Sprintf("%d | %s | %s", p.ErrorCode, strings.Join(indexes, ","), stamped), nil
}
