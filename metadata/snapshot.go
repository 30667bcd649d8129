package metadata

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"maps"
	"slices"
)

const (
	snapshotMagic = "KLIMAGE\n"
	// snapshotVersion 4 has the kinds of ignored records, 3 shards and groups, 2 members and unclean epochs; what has none of a version's is
	// written as the one before.
	snapshotVersion = 4
	// maxFrame bounds one frame: a topic of 100,000 partitions with three replicas is about 10 MB.
	maxFrame = 64 << 20
)

// The frames of a snapshot.
const (
	frameHead    = 1
	frameFeature = 2
	frameBroker  = 3
	frameTopic   = 4
	frameConfig  = 5
	frameLane    = 6
	frameMember  = 7
	frameUnclean = 8
	frameShard   = 9
	frameGroup   = 10
	frameIgnored = 11
	frameEnd     = 0
)

// WriteSnapshot writes the image and the groups; nil is none. The same image and groups give the same bytes.
//
//	┌────────────┬─────────┬────────┬────────┬─────┬───────┬───────────────┐
//	│ "KLIMAGE\n"│ version │ frame  │ frame  │ …   │ end   │ CRC-32C       │
//	│ 8          │ 1       │        │        │     │ 0 0   │ 4, big-endian │
//	└────────────┴─────────┴────────┴────────┴─────┴───────┴───────────────┘
//	                                                         over all before
//	frame:  ┌──────┬──────────────────┬───────┐   head: index term chain cluster-id voters producer-id ignored
//	        │ kind │ length (varint)  │ bytes │   then features, brokers, topics, settings, lanes, members, unclean
//	        └──────┴──────────────────┴───────┘   epochs (topic, partition, epoch), shards, groups, each in order,
//	                                              and the kinds of ignored records
//	group:  name, offsets, entries; one that takes more than a MiB goes on in further frames of that name
func (m *Image) WriteSnapshot(to io.Writer, groups *Frozen) error {
	w := &frameWriter{w: bufio.NewWriterSize(to, 64<<10), crc: crc32.New(castagnoli)}
	w.put([]byte(snapshotMagic))
	unclean := m.uncleanEpochs()
	w.put([]byte{m.snapshotVersion(groups, len(unclean))})
	w.frame(frameHead, m.appendHead(nil))
	var b []byte
	for name, level := range m.features.all() {
		w.frame(frameFeature, appendInt(appendText(b[:0], name), int64(level)))
	}
	for _, broker := range m.brokers.all() {
		b = broker.append(b[:0])
		w.frame(frameBroker, b)
	}
	for _, t := range m.topics.all() {
		b = t.append(b[:0])
		w.frame(frameTopic, b)
	}
	for res, c := range m.configs.all() {
		b = appendConfig(b[:0], res, c)
		w.frame(frameConfig, b)
	}
	for key, l := range m.lanes.all() {
		b = appendLane(b[:0], key, l)
		w.frame(frameLane, b)
	}
	for _, x := range m.members.all() {
		b = x.append(b[:0])
		w.frame(frameMember, b)
	}
	for _, u := range unclean {
		b = appendInt(appendInt(append(b[:0], u.topic[:]...), int64(u.partition)), int64(u.epoch))
		w.frame(frameUnclean, b)
	}
	w.groups(m, groups)
	if len(m.ignoredKinds) > 0 {
		w.frame(frameIgnored, m.appendIgnored(b[:0]))
	}
	w.frame(frameEnd, nil)
	w.put(w.crc.Sum(nil))
	if w.err != nil {
		return fmt.Errorf("metadata: write snapshot: %w", w.err)
	}
	return w.w.Flush()
}

// uncleanEpoch is the UncleanEpoch of one partition.
type uncleanEpoch struct {
	topic            TopicID
	partition, epoch int32
}

func (m *Image) uncleanEpochs() []uncleanEpoch {
	var all []uncleanEpoch
	for _, t := range m.ids.all() {
		for i, p := range t.Partitions {
			if p.UncleanEpoch > 0 {
				all = append(all, uncleanEpoch{t.ID, int32(i), p.UncleanEpoch})
			}
		}
	}
	return all
}

type frameWriter struct {
	w   *bufio.Writer
	crc hash.Hash32
	err error
}

func (w *frameWriter) put(p []byte) {
	if w.err == nil {
		w.crc.Write(p)
		_, w.err = w.w.Write(p)
	}
}

func (w *frameWriter) frame(kind byte, body []byte) {
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = kind
	w.put(binary.AppendUvarint(head[:1], uint64(len(body))))
	w.put(body)
}

func (m *Image) appendHead(b []byte) []byte {
	b = appendUint(b, m.index)
	b = appendUint(b, m.term)
	b = append(b, m.chain[:]...)
	b = appendText(b, m.clusterID)
	b = appendVoters(b, m.voters)
	b = appendInt(b, m.producerID)
	return appendUint(b, m.ignored)
}

func (b *Broker) append(w []byte) []byte {
	w = appendInt(w, int64(b.ID))
	w = appendInt(w, b.Epoch)
	w = append(w, b.Incarnation[:]...)
	w = appendListeners(w, b.Listeners)
	w = appendText(w, b.Rack)
	w = appendDirectories(w, b.Directories)
	w = appendBool(w, b.Fenced)
	return appendBool(w, b.ShuttingDown)
}

func (t *Topic) append(w []byte) []byte {
	w = appendText(w, t.Name)
	w = append(w, t.ID[:]...)
	w = appendUint(w, uint64(len(t.Partitions)))
	for _, p := range t.Partitions {
		w = appendPartition(w, p)
	}
	return w
}

func appendConfig(w []byte, res Resource, c map[string]string) []byte {
	w = append(w, byte(res.Kind))
	w = appendText(w, res.Name)
	w = appendUint(w, uint64(len(c)))
	for _, k := range slices.Sorted(maps.Keys(c)) {
		w = appendText(w, k)
		w = appendText(w, c[k])
	}
	return w
}

func appendLane(w []byte, key laneKey, l *laneState) []byte {
	w = appendInt(w, int64(key.broker))
	w = append(w, byte(key.lane))
	w = appendInt(w, l.epoch)
	w = appendUint(w, l.sequence)
	w = appendUint(w, l.index)
	return appendText(w, string(l.results))
}

// ReadSnapshot reads what WriteSnapshot wrote, up to its last byte. Errors wrap ErrCorrupt or ErrNewerVersion, or are those of
// from. Nothing is believed before the CRC at the end has been checked.
func ReadSnapshot(from io.Reader) (*Image, *Tables, error) {
	r := &frameReader{r: bufio.NewReaderSize(from, 64<<10), crc: crc32.New(castagnoli)}
	head, err := r.read(len(snapshotMagic) + 1)
	if err != nil {
		return nil, nil, err
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return nil, nil, fmt.Errorf("%w: no snapshot of an image begins with %q", ErrCorrupt, head)
	}
	if v := head[len(snapshotMagic)]; v > snapshotVersion {
		return nil, nil, fmt.Errorf("%w: snapshot version %d, this program knows %d", ErrNewerVersion, v, snapshotVersion)
	}
	m, t := New(), NewTables()
	for last := byte(0); ; {
		kind, body, err := r.frame()
		if err != nil {
			return nil, nil, err
		}
		if kind == frameEnd {
			break
		}
		if kind < last || (last == 0) != (kind == frameHead) {
			return nil, nil, fmt.Errorf("%w: frame %d after frame %d", ErrCorrupt, kind, last)
		}
		last = kind
		if err := m.readFrame(t, kind, body); err != nil {
			return nil, nil, fmt.Errorf("snapshot frame %d: %w", kind, err)
		}
	}
	if err := r.checkEnd(); err != nil {
		return nil, nil, err
	}
	m.changed = m.index
	return m, t, nil
}

type frameReader struct {
	r   *bufio.Reader
	crc hash.Hash32
	buf []byte
}

// read reads n bytes, in steps, so that a wrong length allocates no more than twice what is there.
func (r *frameReader) read(n int) ([]byte, error) {
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		step := min(n-len(r.buf), max(64<<10, len(r.buf)))
		at := len(r.buf)
		r.buf = slices.Grow(r.buf, step)[:at+step]
		if _, err := io.ReadFull(r.r, r.buf[at:]); err != nil {
			return nil, short(err)
		}
	}
	r.crc.Write(r.buf)
	return r.buf, nil
}

func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the snapshot ends too early", ErrCorrupt)
	}
	return fmt.Errorf("metadata: read snapshot: %w", err)
}

// ReadByte makes the reader one of varints.
func (r *frameReader) ReadByte() (byte, error) {
	b, err := r.r.ReadByte()
	if err == nil {
		r.crc.Write([]byte{b})
	}
	return b, err
}

func (r *frameReader) frame() (kind byte, body []byte, err error) {
	if kind, err = r.ReadByte(); err != nil {
		return 0, nil, short(err)
	}
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, nil, short(err)
	}
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrCorrupt, n)
	}
	body, err = r.read(int(n))
	return kind, body, err
}

// checkEnd compares the CRC and wants nothing behind it.
func (r *frameReader) checkEnd() error {
	got := r.crc.Sum32()
	var want [4]byte
	if _, err := io.ReadFull(r.r, want[:]); err != nil {
		return short(err)
	}
	if w := binary.BigEndian.Uint32(want[:]); w != got {
		return fmt.Errorf("%w: CRC of a snapshot is %08x, its bytes make %08x", ErrCorrupt, w, got)
	}
	switch _, err := r.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: bytes behind the snapshot's end", ErrCorrupt)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("metadata: read snapshot: %w", err)
	}
	return nil
}

func (m *Image) readFrame(t *Tables, kind byte, body []byte) error {
	r := &reader{b: body}
	switch kind {
	case frameHead:
		m.index, m.term = r.uint(), r.uint()
		copy(m.chain[:], r.take(len(m.chain)))
		m.clusterID, m.voters = r.text(), readVoters(r)
		m.producerID, m.ignored = r.int(), r.uint()
	case frameFeature:
		name := r.text()
		m.features = m.features.put(name, r.int16())
	case frameBroker:
		b := &Broker{
			ID: r.int32(), Epoch: r.int(), Incarnation: r.id(), Listeners: readListeners(r), Rack: r.text(),
			Directories: r.directories(), Fenced: r.bool(), ShuttingDown: r.bool(),
		}
		m.brokers = m.brokers.put(b.ID, b)
	case frameTopic:
		t := &Topic{Name: r.text(), ID: r.id()}
		t.Partitions = pointers(nil, readPartitions(r))
		m.topics, m.ids = m.topics.put(t.Name, t), m.ids.put(t.ID, t)
		m.partitions += len(t.Partitions)
	case frameConfig:
		res := Resource{ResourceKind(r.byte()), r.text()}
		c := map[string]string{}
		for range r.count(2) {
			k := r.text()
			c[k] = r.text()
		}
		m.configs = m.configs.put(res, c)
	case frameLane:
		key := laneKey{r.int32(), Lane(r.byte())}
		l := &laneState{epoch: r.int(), sequence: r.uint(), index: r.uint(), results: []byte(r.text())}
		m.lanes = m.lanes.put(key, l)
	case frameMember:
		x := readMember(r)
		m.members = m.members.put(x.ID, &x)
	case frameUnclean:
		u := uncleanEpoch{r.id(), r.int32(), r.int32()}
		p, ok := m.Partition(u.topic, u.partition)
		if !ok {
			return fmt.Errorf("%w: unclean epoch of a partition that is not there", ErrCorrupt)
		}
		p.UncleanEpoch = u.epoch
	case frameShard:
		m.readShard(r)
	case frameGroup:
		t.readGroup(r)
	case frameIgnored:
		m.readIgnored(r)
	default:
		return fmt.Errorf("%w: unknown frame", ErrCorrupt)
	}
	return r.end()
}
