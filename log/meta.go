package log

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/vfs"
)

// Names of the files that say what a directory is.
const (
	MetaFile      = "meta.properties"
	LockFile      = ".lock"
	CleanFile     = ".kafka_cleanshutdown"
	PartitionFile = "partition.metadata"
	SpareFile     = "next.spare"
)

// Meta is meta.properties: whose directory this is.
type Meta struct {
	ClusterID   string
	NodeID      int32
	DirectoryID string            // 22 characters
	Other       map[string]string // further keys, kept as they are
}

// Encode writes meta.properties.
func (m Meta) Encode() []byte {
	lines := map[string]string{}
	maps.Copy(lines, m.Other)
	lines["version"], lines["cluster.id"] = "1", m.ClusterID
	lines["node.id"], lines["directory.id"] = strconv.Itoa(int(m.NodeID)), m.DirectoryID
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "%s=%s\n", k, lines[k])
	}
	return []byte(b.String())
}

// DecodeMeta reads meta.properties. Errors: ErrBadFile, ErrNewerVersion.
func DecodeMeta(b []byte) (Meta, error) {
	m := Meta{NodeID: -1, Other: map[string]string{}}
	version := 0
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return m, fmt.Errorf("%w: line %q", ErrBadFile, line)
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch key {
		case "cluster.id":
			m.ClusterID = value
		case "directory.id":
			m.DirectoryID = value
		case "version", "node.id", "broker.id":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return m, fmt.Errorf("%w: %s is %q", ErrBadFile, key, value)
			}
			if key == "version" {
				version = int(n)
			} else {
				m.NodeID = int32(n)
			}
		default:
			m.Other[key] = value
		}
	}
	if version > 1 {
		return m, fmt.Errorf("%w: %s version %d", ErrNewerVersion, MetaFile, version)
	}
	if m.ClusterID == "" && m.DirectoryID == "" && m.NodeID < 0 {
		return m, fmt.Errorf("%w: it names no cluster, node or directory", ErrBadFile)
	}
	return m, nil
}

// EncodePartition writes partition.metadata.
func EncodePartition(id [16]byte) []byte {
	return []byte("version: 0\ntopic_id: " + base64.RawURLEncoding.EncodeToString(id[:]))
}

// DecodePartition reads partition.metadata. Errors: ErrBadFile, ErrNewerVersion.
func DecodePartition(b []byte) (id [16]byte, err error) {
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "version":
			if n, err := strconv.Atoi(value); err != nil {
				return id, fmt.Errorf("%w: version %q", ErrBadFile, value)
			} else if n > 0 {
				return id, fmt.Errorf("%w: %s version %d", ErrNewerVersion, PartitionFile, n)
			}
		case "topic_id":
			raw, err := base64.RawURLEncoding.DecodeString(value)
			if err != nil || len(raw) != len(id) {
				return id, fmt.Errorf("%w: topic id %q", ErrBadFile, value)
			}
			copy(id[:], raw)
		}
	}
	if id == ([16]byte{}) {
		return id, fmt.Errorf("%w: no topic id", ErrBadFile)
	}
	return id, nil
}

type cleanMarker struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

func encodeClean(epoch int64) []byte {
	b, err := json.Marshal(cleanMarker{BrokerEpoch: epoch})
	if err != nil {
		panic(err)
	}
	return b
}

// decodeClean reads the clean-stop marker; −1 where it does not say an epoch.
func decodeClean(b []byte) int64 {
	m := cleanMarker{BrokerEpoch: -1}
	if json.Unmarshal(b, &m) != nil {
		return -1
	}
	return m.BrokerEpoch
}

// Suffixes of partition directories that are no partition's any more.
const (
	deleteSuffix = "-delete"
	straySuffix  = "-stray"
	futureSuffix = "-future"
)

// ErrName says that a topic name cannot be the name of a directory.
var ErrName = errors.New("log: illegal topic name")

// CheckName tests a topic's name: 1 to 249 of [a-zA-Z0-9._-], not . or .. .
func CheckName(topic string) error {
	if topic == "" || len(topic) > 249 || topic == "." || topic == ".." {
		return fmt.Errorf("%w: %.260q", ErrName, topic)
	}
	for i := range len(topic) {
		c := topic[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("%w: %.260q", ErrName, topic)
		}
	}
	return nil
}

// DirName is the name of a partition's directory.
func DirName(topic string, partition int32) string {
	return topic + "-" + strconv.Itoa(int(partition))
}

// ParseDirName splits the name of a partition's directory.
func ParseDirName(name string) (topic string, partition int32, ok bool) {
	at := strings.LastIndexByte(name, '-')
	if at <= 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[at+1:], 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != name[at+1:] || CheckName(name[:at]) != nil {
		return "", 0, false
	}
	return name[:at], int32(n), true
}

// retiredName is what a directory is called on its way out. The topic's part is cut so that the name stays legal.
func retiredName(topic string, partition int32, random [16]byte, suffix string) string {
	tail := fmt.Sprintf("-%d.%x%s", partition, random, suffix)
	return topic[:min(len(topic), 255-len(tail))] + tail
}

// isRetired says that a directory's name has one of Kafka's suffixes.
func isRetired(name string) (suffix string, ok bool) {
	for _, s := range []string{deleteSuffix, straySuffix, futureSuffix} {
		stem, cut := strings.CutSuffix(name, s)
		if !cut {
			continue
		}
		dot := strings.LastIndexByte(stem, '.')
		if dot > 0 && len(stem)-dot-1 == 32 && strings.Trim(stem[dot+1:], "0123456789abcdef") == "" {
			return s, true
		}
	}
	return "", false
}

// ReadMeta reads the meta.properties of a directory that is not open, and changes nothing. ok is false where there is none.
// Errors: ErrBadFile, ErrNewerVersion, and those of the file system.
func ReadMeta(fsys vfs.FS, dir string) (m Meta, ok bool, err error) {
	b, err := readFile(fsys, filepath.Join(dir, MetaFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, false, nil
	case err != nil:
		return m, false, err
	}
	m, err = DecodeMeta(b)
	return m, err == nil, err
}
