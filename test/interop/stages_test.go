package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Requests laid out by hand, byte by byte, and answers compared byte by byte: what somebody who writes a client from the protocol's
// description sees.

// h turns hexadecimal, with spaces as one likes, into bytes.
func h(format string, args ...any) []byte {
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(fmt.Sprintf(format, args...)))
	if err != nil {
		panic(err)
	}
	return b
}

// framed puts the size before the bytes.
func framed(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

// request is a frame of key and version with the given correlation id, the client id "kafka-cli", and an empty tag buffer.
func request(key, version int16, correlation uint32, body []byte) []byte {
	b := h("%04x %04x %08x 0009 %x 00", uint16(key), uint16(version), correlation, "kafka-cli")
	return framed(append(b, body...))
}

// converse sends a frame and returns the answer without its size.
func converse(t *testing.T, c net.Conn, frame []byte) []byte {
	t.Helper()
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return b
}

func sameBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
}

// apiVersions4 is the body of ApiVersions version 4: "kafka-cli" "0.1".
var apiVersions4 = h("0a %x 04 %x 00", "kafka-cli", "0.1")

func TestStageApiVersions(t *testing.T) {
	c := dial(t)
	check := func(t *testing.T, c net.Conn, id uint32) {
		t.Helper()
		got := converse(t, c, request(18, 4, id, apiVersions4))
		if !bytes.HasPrefix(got, h("%08x 0000", id)) { // no tag buffer in this answer's header, whatever the version
			t.Fatalf("answer %x", got)
		}
		for _, entry := range []string{"0000 0000 000d 00", "0001 0004 0012 00", "0012 0000 0005 00", "004b 0000 0000 00"} {
			if !bytes.Contains(got, h("%s", entry)) {
				t.Errorf("no entry %s in %x", entry, got)
			}
		}
		entries := int(got[6]) - 1
		if rest := got[7+7*entries:]; len(rest) < 5 || !bytes.Equal(rest[:4], h("00000000")) {
			t.Errorf("after %d entries: %x", entries, rest)
		}
	}
	check(t, c, 0x6f7fc661)
	sameBytes(t, "a version that does not exist", converse(t, c, request(18, 1234, 7, apiVersions4)), h("00000007 0023 00000001 0012 0000 0005"))
	for id := range uint32(5) { // one after the other on the same connection
		check(t, c, id+100)
	}
	var wg sync.WaitGroup // several at once, each with several
	for n := range uint32(6) {
		conn := dial(t)
		wg.Go(func() {
			for id := range uint32(10) {
				check(t, conn, n<<16+id)
			}
		})
	}
	wg.Wait()
}

// stageTopic makes a topic and returns its name and its id in hexadecimal.
func stageTopic(t *testing.T, suffix string, partitions int32) (name, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	name = fmt.Sprintf("s%d%s", time.Now().UnixNano()%1e9, suffix)
	r, err := kadm.NewClient(franz(t)).CreateTopic(ctx, partitions, 1, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	return name, hex.EncodeToString(r.ID[:])
}

// compact is a string in the compact form.
func compact(s string) string { return fmt.Sprintf("%02x %x", len(s)+1, s) }

func TestStageDescribeTopicPartitions(t *testing.T) {
	c := dial(t)
	ask := func(id uint32, names ...string) []byte {
		body := fmt.Sprintf("%02x", len(names)+1)
		for _, n := range names {
			body += compact(n) + "00"
		}
		return converse(t, c, request(75, 0, id, h("%s 00000064 ff 00", body)))
	}
	const operations = "00000df8"
	partition := func(n int) string {
		return fmt.Sprintf("0000 %08x 00000001 00000000 02 00000001 02 00000001 01 01 01 00", n)
	}
	sameBytes(t, "a topic that does not exist", ask(1, "missing"),
		h("00000001 00 00000000 02 0003 %s 00000000000000000000000000000000 00 01 %s 00 ff 00", compact("missing"), operations))
	one, oneID := stageTopic(t, "a", 1)
	sameBytes(t, "one partition", ask(2, one), h("00000002 00 00000000 02 0000 %s %s 00 02 %s %s 00 ff 00", compact(one), oneID, partition(0), operations))
	two, twoID := stageTopic(t, "b", 2)
	sameBytes(t, "two partitions", ask(3, two),
		h("00000003 00 00000000 02 0000 %s %s 00 03 %s %s %s 00 ff 00", compact(two), twoID, partition(0), partition(1), operations))
	first, second := fmt.Sprintf("0000 %s %s 00 02 %s %s 00", compact(one), oneID, partition(0), operations),
		fmt.Sprintf("0000 %s %s 00 03 %s %s %s 00", compact(two), twoID, partition(0), partition(1), operations)
	if two < one {
		first, second = second, first
	}
	sameBytes(t, "topics, by name", ask(4, two, one), h("00000004 00 00000000 03 %s %s ff 00", first, second))
}

// batch is a record batch without keys and headers, as it is produced.
func batch(values ...string) []byte {
	var records []byte
	for i, v := range values {
		r := append(h("00 00"), binary.AppendVarint(nil, int64(i))...)
		r = append(binary.AppendVarint(append(r, 1), int64(len(v))), v...)
		r = append(r, 0)
		records = append(append(records, binary.AppendVarint(nil, int64(len(r)))...), r...)
	}
	const ms = 0x18bcfe56800
	tail := append(h("0000 %08x %016x %016x ffffffffffffffff ffff ffffffff %08x", len(values)-1, ms, ms, len(values)), records...)
	crc := crc32.Checksum(tail, crc32.MakeTable(crc32.Castagnoli))
	return append(h("0000000000000000 %08x ffffffff 02 %08x", len(tail)+9, crc), tail...)
}

// stored is a batch as it is read back: base offset and leader epoch are the broker's, nothing else changes.
func stored(b []byte, base int64) []byte {
	b = bytes.Clone(b)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[12:], 0)
	return b
}

// records is a field of records in the compact form.
func records(b []byte) string {
	return fmt.Sprintf("%x %x", binary.AppendUvarint(nil, uint64(len(b)+1)), b)
}

func TestStageFetch(t *testing.T) {
	c := dial(t)
	fetch := func(correlation uint32, topics string) []byte {
		return converse(t, c, request(1, 16, correlation, h("00000000 00000000 7fffffff 00 00000000 ffffffff %s 01 01 00", topics)))
	}
	topic := func(id string) string {
		return fmt.Sprintf("02 %s 02 00000000 ffffffff 0000000000000000 ffffffff ffffffffffffffff 00100000 00 00", id)
	}
	sameBytes(t, "no topics", fetch(1, "01"), h("00000001 00 00000000 0000 00000000 01 00"))
	const unknown = "00000000000040008000000000009999"
	sameBytes(t, "an unknown topic id", fetch(2, topic(unknown)),
		h("00000002 00 00000000 0000 00000000 02 %s 02 00000000 0064 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 ffffffff 01 00 00 00", unknown))
	name, id := stageTopic(t, "f", 1)
	answer := func(correlation uint32, end int64, data []byte) []byte {
		return h("%08x 00 00000000 0000 00000000 02 %s 02 00000000 0000 %016x %016x 0000000000000000 00 ffffffff %s 00 00 00",
			correlation, id, end, end, records(data))
	}
	sameBytes(t, "an empty topic", fetch(3, topic(id)), answer(3, 0, nil))
	one, more := batch("Hello Fetch!"), batch("two", "three")
	produceStage(t, c, produced{name, 0, one, 0})
	sameBytes(t, "one message", fetch(4, topic(id)), answer(4, 1, stored(one, 0)))
	produceStage(t, c, produced{name, 0, more, 1})
	sameBytes(t, "several messages", fetch(5, topic(id)), answer(5, 3, append(stored(one, 0), stored(more, 1)...)))
}

// produced is one partition of a Produce request; code −n stands for error n, anything else for the base offset of the answer.
type produced struct {
	topic     string
	partition int32
	batch     []byte
	code      int64
}

// produceStage sends Produce version 11 with acks −1 and compares the answer. Partitions of one topic stand side by side.
func produceStage(t *testing.T, c net.Conn, list ...produced) {
	t.Helper()
	var ask, want string
	topics := 0
	for i := 0; i < len(list); topics++ {
		j := i
		for ; j < len(list) && list[j].topic == list[i].topic; j++ {
		}
		ask += fmt.Sprintf("%s %02x", compact(list[i].topic), j-i+1)
		want += fmt.Sprintf("%s %02x", compact(list[i].topic), j-i+1)
		for _, p := range list[i:j] {
			ask += fmt.Sprintf("%08x %s 00", uint32(p.partition), records(p.batch))
			if p.code < 0 {
				want += fmt.Sprintf("%08x %04x ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00 00", uint32(p.partition), -p.code)
			} else {
				want += fmt.Sprintf("%08x 0000 %016x ffffffffffffffff 0000000000000000 01 00 00", uint32(p.partition), p.code)
			}
		}
		ask, want = ask+"00", want+"00"
		i = j
	}
	got := converse(t, c, request(0, 11, 99, h("00 ffff 00000bb8 %02x %s 00", topics+1, ask)))
	sameBytes(t, "produce", got, h("00000063 00 %02x %s 00000000 00", topics+1, want))
}

func TestStageProduce(t *testing.T) {
	c := dial(t)
	name, id := stageTopic(t, "p", 3)
	other, _ := stageTopic(t, "q", 1)
	produceStage(t, c, produced{"missing", 0, batch("x"), -3})
	produceStage(t, c, produced{name, 3, batch("x"), -3}, produced{name, -1, batch("x"), -3})
	produceStage(t, c, produced{name, 0, batch("one"), 0})
	produceStage(t, c, produced{name, 0, batch("two", "three", "four"), 1})
	produceStage(t, c, produced{name, 1, batch("a"), 0}, produced{name, 2, batch("b", "c"), 0}, produced{name, 0, batch("five"), 4})
	produceStage(t, c, produced{name, 1, batch("d"), 1}, produced{other, 0, batch("e"), 0}, produced{"missing", 0, batch("f"), -3})
	want := bytes.Join([][]byte{stored(batch("one"), 0), stored(batch("two", "three", "four"), 1), stored(batch("five"), 4)}, nil)
	got := converse(t, c, request(1, 16, 7, h(`00000000 00000000 7fffffff 00 00000000 ffffffff
		02 %s 02 00000000 ffffffff 0000000000000000 ffffffff ffffffffffffffff 00100000 00 00 01 01 00`, id)))
	if !bytes.Contains(got, h("%s", records(want))) {
		t.Errorf("what was produced is not what is read: %x", got)
	}
	same(t, "franz-go", franzRead(t, other, position{}, 1), []message{{0, "", "e"}})
}
