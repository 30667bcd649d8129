package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// identity is a member: its id, and the directory that makes it this member and no other. A zero directory is not known.
type identity struct {
	id        metadata.BrokerID
	directory metadata.DirectoryID
}

// anyone is the target of who does not know whom it will reach.
var anyone = identity{id: -1}

// address is how Raft names the member: ID/DIRECTORY, or the ID where the directory is not known, as in the log of a node that
// began alone. Where the member listens is not in it, so that it may change.
func (i identity) address() raft.ServerAddress {
	if i.directory == (metadata.DirectoryID{}) {
		return raft.ServerAddress(serverID(i.id))
	}
	return raft.ServerAddress(string(serverID(i.id)) + "/" + i.directory.String())
}

func parseAddress(a raft.ServerAddress) (i identity, err error) {
	id, directory, has := strings.Cut(string(a), "/")
	if i.id, err = parseServerID(id); err == nil && has {
		i.directory, err = metadata.ParseDirectoryID(directory)
	}
	return i, err
}

func (i identity) String() string { return string(i.address()) }

// call is what a connection is for.
type call byte

const (
	callRaft  call = 1
	callHello call = 2
	callJoin  call = 3
)

// verdict is the answer to a preamble.
type verdict byte

const (
	welcome        verdict = 0
	foreignCluster verdict = 1
	notTheTarget   verdict = 2
	notServed      verdict = 3
)

// preamble opens every connection between members:
//
//	┌────────┬─────────┬──────┬──────┬───────────────────────────────────────────────────────────────────────┬─────────┐
//	│ "KLCT" │ version │ kind │ size │ cluster id, sender's id and directory, target's id and directory       │ CRC-32C │
//	│ 4      │ 1       │ 1    │ 2    │ size bytes                                                            │ 4       │
//	└────────┴─────────┴──────┴──────┴───────────────────────────────────────────────────────────────────────┴─────────┘
//	answer: "KLCT", version, verdict, size, text; CRC-32C     numbers are big-endian, the CRC is over all before it
//
// Kind raft (1) goes on with Raft's stream; hello (2) and join (3) with one frame each way: size 4, body, CRC-32C 4.
type preamble struct {
	kind     call
	cluster  string
	from, to identity
}

const (
	preambleMagic = "KLCT"
	wireVersion   = 1
	preambleHead  = 8
	maxPreamble   = 4 << 10
	// maxHello bounds a hello; a cluster of 1,000 members takes about 60 KiB.
	maxHello = 256 << 10
)

var (
	errWire      = errors.New("quorum: no message between members")
	errWireNewer = errors.New("quorum: the other member speaks a newer version")
)

// sealed is head, body and CRC of a preamble or its answer.
func sealed(kind byte, body []byte) []byte {
	b := append([]byte(preambleMagic), wireVersion, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// unseal reads what sealed made. It reads no byte more.
func unseal(r io.Reader) (kind byte, body []byte, err error) {
	head := make([]byte, preambleHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	if string(head[:4]) != preambleMagic {
		return 0, nil, fmt.Errorf("%w: it begins with %q", errWire, head[:4])
	}
	size := int(binary.BigEndian.Uint16(head[6:]))
	if size > maxPreamble {
		return 0, nil, fmt.Errorf("%w: a preamble of %d bytes", errWire, size)
	}
	rest := make([]byte, size+4)
	if _, err := io.ReadFull(r, rest); err != nil {
		return 0, nil, err
	}
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, rest[:size])
	if sum != binary.BigEndian.Uint32(rest[size:]) {
		return 0, nil, fmt.Errorf("%w: CRC of a preamble", errWire)
	}
	if head[4] > wireVersion {
		return 0, nil, fmt.Errorf("%w: %d, this program %d", errWireNewer, head[4], wireVersion)
	}
	return head[5], rest[:size], nil
}

func (p preamble) append(w []byte) []byte {
	return append(w, sealed(byte(p.kind), appendIdentity(appendIdentity(appendString(nil, p.cluster), p.from), p.to))...)
}

func readPreamble(r io.Reader) (p preamble, err error) {
	kind, body, err := unseal(r)
	if err != nil {
		return p, err
	}
	f := &fields{b: body}
	p = preamble{kind: call(kind), cluster: f.text(), from: f.identity(), to: f.identity()}
	return p, f.end()
}

// frame is a body with size and CRC.
func frame(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxHello {
		return nil, fmt.Errorf("%w: a frame of %d bytes", errWire, size)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(size)+4))
	if err != nil {
		return nil, err
	}
	if uint32(len(body)) != size+4 {
		return nil, io.ErrUnexpectedEOF
	}
	if binary.BigEndian.Uint32(body[size:]) != crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body[:size]) {
		return nil, fmt.Errorf("%w: CRC of a frame", errWire)
	}
	return body[:size], nil
}

func appendString(w []byte, s string) []byte {
	return append(binary.AppendUvarint(w, uint64(len(s))), s...)
}

func appendFlag(w []byte, b bool) []byte {
	if b {
		return append(w, 1)
	}
	return append(w, 0)
}

func appendIdentity(w []byte, i identity) []byte {
	return append(binary.AppendVarint(w, int64(i.id)), i.directory[:]...)
}

func appendEndpoint(w []byte, e metadata.Endpoint) []byte {
	w = appendString(appendString(w, e.Name), e.Host)
	return binary.AppendVarint(binary.AppendUvarint(w, uint64(e.Port)), int64(e.Protocol))
}

// fields takes values from bytes; the first failure sticks.
type fields struct {
	b   []byte
	err error
}

func (f *fields) fail(what string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", errWire, what)
	}
	f.b = nil
}

func (f *fields) uint() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.fail("a number is missing")
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) int(lowest, highest int64) int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 || v < lowest || v > highest {
		f.fail("a number is missing or out of range")
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) take(n uint64) []byte {
	if n > uint64(len(f.b)) {
		f.fail("it ends too early")
		return nil
	}
	p := f.b[:n]
	f.b = f.b[n:]
	return p
}

func (f *fields) text() string { return string(f.take(f.uint())) }

func (f *fields) flag() bool {
	p := f.take(1)
	if p != nil && p[0] > 1 {
		f.fail("no truth value")
	}
	return p != nil && p[0] == 1
}

func (f *fields) directory() (d metadata.DirectoryID) {
	copy(d[:], f.take(uint64(len(d))))
	return d
}

func (f *fields) id() metadata.BrokerID { return metadata.BrokerID(f.int(-1, 1<<31-1)) }

func (f *fields) identity() identity { return identity{f.id(), f.directory()} }

func (f *fields) endpoint() metadata.Endpoint {
	e := metadata.Endpoint{Name: f.text(), Host: f.text()}
	port := f.uint()
	if port > 65535 {
		f.fail("a port is out of range")
	}
	e.Port, e.Protocol = uint16(port), int16(f.int(0, 1<<15-1))
	return e
}

// count reads the number of elements of at least size bytes each.
func (f *fields) count(size uint64) int {
	n := f.uint()
	if n > uint64(len(f.b))/size {
		f.fail("a count is too large")
		return 0
	}
	return int(n)
}

func (f *fields) end() error {
	if f.err == nil && len(f.b) > 0 {
		f.fail("bytes behind its end")
	}
	return f.err
}
