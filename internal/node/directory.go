package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/server/api"
	"github.com/keeplog/keeplog/vfs"
)

// directory is one data directory and its id.
type directory struct {
	*log.Dir
	path string
	id   metadata.DirectoryID
	// known is the cluster that meta.properties names, empty for a fresh directory.
	known string
}

// openDirs opens every directory of log.dirs and checks that they belong to this node and to one cluster.
func (n *Node) openDirs(context.Context) error {
	if err := n.survey(); err != nil {
		return err
	}
	for _, where := range n.cfg.LogDirs() {
		d, err := log.OpenDir(n.dirOptions(where))
		if err != nil {
			return fmt.Errorf("data directory %s: %w", where, err)
		}
		dir := &directory{Dir: d, path: where}
		n.dirs = append(n.dirs, dir)
		if err := dir.identify(n.cfg.NodeID()); err != nil {
			return fmt.Errorf("data directory %s: %w", where, err)
		}
	}
	dirs := make([]*log.Dir, len(n.dirs))
	for i, d := range n.dirs {
		dirs[i] = d.Dir
	}
	if err := log.SettleMoves(dirs); err != nil {
		return err
	}
	return n.checkTwice()
}

// ErrStrange says that a directory without meta.properties holds what no broker puts there.
var ErrStrange = errors.New("node: not a data directory")

// checkFresh refuses a directory that is not empty and has no meta.properties. Opening it would take away what looks like
// temporary files, and rename what looks like partitions that no topic has.
func checkFresh(fsys vfs.FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	used := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == log.MarksFile })
	var strange []string
	for _, e := range entries {
		if e.Name() == log.MetaFile {
			return nil
		}
		if !ownName(e, used) {
			strange = append(strange, e.Name())
		}
	}
	if len(strange) == 0 {
		return nil
	}
	shown := strings.Join(strange[:min(3, len(strange))], ", ")
	if len(strange) > 3 {
		shown += ", …"
	}
	return fmt.Errorf("%w: it has no meta.properties, and holds %s", ErrStrange, shown)
}

// ownName says whether a broker may have left e in a directory without meta.properties. Partitions it has there only when it
// used the directory before.
func ownName(e fs.DirEntry, used bool) bool {
	name := e.Name()
	if e.IsDir() {
		_, _, partition := log.ParseDirName(name)
		return name == "lost+found" || used && partition
	}
	switch strings.TrimSuffix(name, ".tmp") {
	case log.LockFile, log.CleanFile, log.MetaFile, log.RecoveryPointFile, log.LogStartFile, log.WatermarkFile, log.CleanerFile:
		return true
	}
	return strings.HasPrefix(name, "keeplog-")
}

func (n *Node) dirOptions(path string) log.DirOptions {
	return log.DirOptions{
		FS: n.o.FS, Path: path, Logger: n.loggers.room("log"), Codecs: n.codecs, Now: n.o.Now,
		OnOffline: func(err error) { n.offline(path, err) },
		Settings: log.Settings{
			Reserve:                reserve(n.cfg.Int64("keeplog.disk.reserve.bytes")),
			RecoveryThreads:        n.cfg.Int("num.recovery.threads.per.data.dir"),
			RetentionCheckInterval: n.cfg.Duration("log.retention.check.interval.ms"),
			InitialTaskDelay:       orNone(n.cfg.Duration("log.initial.task.delay.ms")),
			ProducerExpiration:     n.cfg.Duration("producer.id.expiration.ms"),
			CheckpointInterval:     n.cfg.Duration("log.flush.offset.checkpoint.interval.ms"),
			WatermarkInterval:      n.cfg.Duration("replica.high.watermark.checkpoint.interval.ms"),
			Seed:                   seed(),
		},
	}
}

// orNone turns a time of 0, which the data directory takes for its default, into none.
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// reserve turns the setting, where -1 asks for the default and 0 for none, into the data directory's terms.
func reserve(bytes int64) int64 {
	switch bytes {
	case -1:
		return 0
	case 0:
		return -1
	}
	return bytes
}

func seed() uint64 {
	var b [8]byte
	rand.Read(b[:])
	var s uint64
	for _, x := range b {
		s = s<<8 | uint64(x)
	}
	return s
}

// ErrForeign says that the directory belongs to another node.
var ErrForeign = errors.New("node: directory of another node")

// identify reads meta.properties. A fresh directory gets an id, which is durable before anything refers to it; the cluster's
// id follows once that is known.
func (d *directory) identify(node int32) error {
	meta, ok := d.Meta()
	if ok && meta.NodeID != node {
		return fmt.Errorf("%w: meta.properties says node.id=%d, this is node %d", ErrForeign, meta.NodeID, node)
	}
	if meta.DirectoryID != "" {
		id, err := metadata.ParseDirectoryID(meta.DirectoryID)
		if err != nil {
			return fmt.Errorf("meta.properties: directory.id: %w", err)
		}
		d.id, d.known = id, meta.ClusterID
		return nil
	}
	rand.Read(d.id[:])
	d.known = meta.ClusterID
	meta.NodeID, meta.DirectoryID = node, d.id.String()
	return d.SetMeta(meta)
}

// claim writes the cluster's id where it is not there yet.
func (d *directory) claim(cluster string) error {
	meta, _ := d.Meta()
	if meta.ClusterID == cluster {
		return nil
	}
	meta.ClusterID = cluster
	return d.SetMeta(meta)
}

// quarantineUnknown renames the directories that the image knows nothing of, or knows as another topic's. Nothing is deleted.
func (d *directory) quarantineUnknown(img *metadata.Image, logger *slog.Logger) {
	for _, f := range d.Found() {
		why := ""
		t, ok := img.TopicByName(f.Topic)
		switch {
		case !ok:
			why = "the metadata has no such topic"
		case f.TopicID != [16]byte{} && metadata.TopicID(f.TopicID) != t.ID:
			why = "the directory belongs to topic id " + metadata.TopicID(f.TopicID).String() + ", the topic's is " + t.ID.String()
		case int(f.Partition) >= len(t.Partitions):
			why = "the topic has no such partition"
		default:
			continue
		}
		if err := d.Quarantine(f, why); err != nil {
			logger.Error("cannot set a stray directory aside", "event", "partition.stray.failed", "path", f.Path, "error", err)
		}
	}
}

// close closes the directory; not clean leaves out the marker of a clean stop.
func (d *directory) close(clean bool) error {
	if !clean {
		return d.Abandon()
	}
	return d.Close()
}

// offline is called when a directory failed. The process goes on only while another directory holds the metadata and data.
func (n *Node) offline(path string, err error) {
	n.log.Error("a data directory went offline", "event", "dir.offline", "path", path, "error", err)
	if path == n.cfg.MetadataDir() || len(n.cfg.LogDirs()) == 1 {
		n.o.Fatal(fmt.Errorf("%w: data directory %s: %w", ErrStorage, path, err))
	}
}

// LogDirs describes the data directories for clients.
func (n *Node) LogDirs() []api.LogDir {
	out := make([]api.LogDir, len(n.dirs))
	for i, d := range n.dirs {
		out[i] = api.LogDir{Path: d.path, Err: d.Offline(), Total: -1, Usable: -1}
		if u, err := d.Usage(); err == nil {
			out[i].Total, out[i].Usable = u.Total, u.Free
		}
	}
	return out
}
