package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/quorum"
	"github.com/keeplog/keeplog/vfs"
)

// ErrDirectories says that the data directories are not those that this node had: one is not there, or two hold the same partition.
var ErrDirectories = errors.New("node: the data directories are not those that this node had")

// survey looks at every data directory before one is opened: opening takes the marker of the clean stop away, which in others'
// directories nobody asked for. Nothing is changed.
func (n *Node) survey() error {
	cluster, named := "", ""
	for _, where := range n.cfg.LogDirs() {
		if err := checkFresh(n.o.FS, where); err != nil {
			return fmt.Errorf("data directory %s: %w", where, err)
		}
		meta, ok, err := log.ReadMeta(n.o.FS, where)
		switch {
		case err != nil:
			return fmt.Errorf("data directory %s: %s: %w", where, log.MetaFile, err)
		case !ok:
			continue
		case meta.NodeID != n.cfg.NodeID():
			return fmt.Errorf("data directory %s: %w: meta.properties says node.id=%d, this is node %d", where, ErrForeign, meta.NodeID, n.cfg.NodeID())
		case meta.ClusterID == "":
			continue
		case cluster != "" && cluster != meta.ClusterID:
			return fmt.Errorf("data directory %s belongs to cluster %s, but %s to cluster %s", where, meta.ClusterID, named, cluster)
		}
		cluster, named = meta.ClusterID, where
		if !exists(n.o.FS, filepath.Join(where, log.MarksFile)) && !exists(n.o.FS, filepath.Join(n.cfg.MetadataDir(), quorum.StoreFile)) {
			return fmt.Errorf("%w: %s belongs to cluster %s, and neither it nor %s was ever keeplog's", quorum.ErrMissing, where, cluster, n.cfg.MetadataDir())
		}
	}
	return nil
}

func exists(fsys vfs.FS, name string) bool {
	_, err := fsys.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// checkTwice refuses two directories that hold the same partition: one of them is a copy, or was away while the other began.
func (n *Node) checkTwice() error {
	where := map[log.TopicPartition]string{}
	for _, d := range n.dirs {
		for _, f := range d.Found() {
			key := log.TopicPartition{Topic: f.Topic, Partition: f.Partition}
			if other, ok := where[key]; ok {
				return fmt.Errorf("%w: both %s and %s are there\ntry: keeplog dump shows what each holds; move one of them away", ErrDirectories, other, f.Path)
			}
			where[key] = f.Path
		}
	}
	return nil
}

// checkAway refuses to go on without a data directory that this node has registered with: an empty folder where a disk should
// be mounted would begin its partitions anew, under offsets that were given out before.
func (n *Node) checkAway(img *metadata.Image) error {
	b, ok := img.Broker(n.cfg.NodeID())
	if !ok {
		return nil
	}
	var here []metadata.DirectoryID
	var fresh, away []string
	for _, d := range n.dirs {
		here = append(here, d.id)
		if !slices.Contains(b.Directories, d.id) {
			fresh = append(fresh, d.path)
		}
	}
	accepted := n.cfg.List("keeplog.lost.directories")
	for _, id := range b.Directories {
		if !slices.Contains(here, id) && !slices.Contains(accepted, id.String()) {
			away = append(away, id.String())
		}
	}
	if len(away) == 0 {
		return nil
	}
	text := "the one with directory.id " + strings.Join(away, ", ") + " is not in log.dirs"
	if len(fresh) > 0 {
		text += "; " + strings.Join(fresh, ", ") + " is new: is a disk not mounted there?"
	}
	return fmt.Errorf("%w: %s\ntry: bring it back; only if it is gone for ever, and the records that nobody else has with it: keeplog serve --set keeplog.lost.directories=%s",
		ErrDirectories, text, strings.Join(away, ","))
}
