package dump

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// dataDir is what a data directory says about its partitions.
type dataDir struct {
	clean    bool // it was stopped cleanly and not started since
	own      bool // it has keeplog-marks
	marks    *markTable
	recovery map[string]record.Offset // "topic partition" → recovery point
	hasPoint bool
}

// stable is the mark of a partition.
func (t *dataDir) stable(topic string, partition int32, id [16]byte) (stable, *markSlot) {
	slot := t.marks.find(id, partition)
	point, ok := t.recovery[topic+" "+decimal(int64(partition))]
	switch {
	case t.clean:
		return stable{known: true, offset: everything, own: t.own, end: point, hasEnd: ok}, slot
	case slot != nil:
		return stable{known: true, offset: slot.offset, own: true}, slot
	}
	if t.own && t.marks.complete {
		point = 0
	}
	return stable{known: t.own || t.hasPoint, offset: point, own: t.own}, nil
}

// dataDirOf looks at a directory that may be a data directory; nil when it has none of its files.
func (d *Dump) dataDirOf(dir string) *dataDir {
	if t, ok := d.data[dir]; ok {
		return t
	}
	t := &dataDir{}
	found := false
	there := func(name string) bool {
		_, err := d.o.FS.Stat(filepath.Join(dir, name))
		return err == nil
	}
	t.clean = there(".kafka_cleanshutdown")
	if there("keeplog-marks") {
		t.own, found = true, true
		t.marks = d.readMarks(filepath.Join(dir, "keeplog-marks"))
	}
	if there("recovery-point-offset-checkpoint") {
		t.hasPoint, found = true, true
		t.recovery = d.readOffsets(filepath.Join(dir, "recovery-point-offset-checkpoint"))
	}
	if !found && !t.clean && !there("meta.properties") {
		t = nil
	}
	d.data[dir] = t
	return t
}

// directory dumps a partition's directory or a data directory.
func (d *Dump) directory(dir string) error {
	list, err := d.o.FS.ReadDir(dir)
	if err != nil {
		return err
	}
	data := d.dataDirOf(dir)
	if data == nil && isPartition(dir, list) {
		return d.wholePartition(dir)
	}
	known := data != nil
	d.learnTopics(dir)
	for _, e := range list {
		if d.stopped() {
			return nil
		}
		p := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			if _, _, _, ok := partitionName(p); !ok {
				continue
			}
			known = known || d.holdsLog(p)
			if err := d.wholePartition(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				d.put(&Problem{Severity: Damage, File: p, Position: -1, End: -1, First: -1, Last: -1, Text: "cannot be read: " + err.Error()})
				d.total.Damage++
			}
		case e.Type().IsRegular():
			known = known || parseName(p).typ != TypeForeign
			d.plainFile(p)
		}
	}
	if data != nil {
		d.missingPartitions(dir, data)
	}
	if !known {
		return fmt.Errorf("%s: no data directory and no partition's directory", dir)
	}
	return nil
}

// holdsLog says whether a directory has a file of a log in it.
func (d *Dump) holdsLog(dir string) bool {
	list, err := d.o.FS.ReadDir(dir)
	return err == nil && slices.ContainsFunc(list, func(e fs.DirEntry) bool { return !e.IsDir() && parseName(e.Name()).typ != TypeForeign })
}

// isPartition tells a partition's directory from a data directory.
func isPartition(dir string, list []fs.DirEntry) bool {
	for _, e := range list {
		if n := parseName(e.Name()); !e.IsDir() && (n.typ == TypeSegment || n.typ == TypeTopicID) {
			return true
		}
	}
	_, _, _, ok := partitionName(dir)
	if ok {
		for _, e := range list {
			if e.IsDir() {
				return false
			}
		}
	}
	return ok
}

func (d *Dump) wholePartition(dir string) error {
	p, err := d.partition(dir)
	if err != nil {
		return err
	}
	p.all()
	return nil
}

// plainFile dumps a file that stands in a data directory.
func (d *Dump) plainFile(path string) {
	n := parseName(path)
	if n.base >= 0 && n.typ != TypeBad { // a segment here belongs to nothing
		n = name{typ: TypeForeign, base: -1}
	}
	f := d.open(path, n)
	if f == nil {
		return
	}
	d.content(f, nil)
	f.finish()
}

// loneFile dumps one file, which may lie in a partition's directory.
func (d *Dump) loneFile(path string) {
	n := parseName(path)
	dir := filepath.Dir(path)
	if n.base < 0 && n.typ != TypeEpochs && n.typ != TypeTopicID {
		d.plainFile(path)
		return
	}
	p, err := d.partition(dir)
	if err != nil {
		d.plainFile(path)
		return
	}
	for i := range p.paths {
		if filepath.Base(p.paths[i]) != filepath.Base(path) {
			continue
		}
		if n.typ != TypeSegment {
			p.other(i)
			return
		}
		if f := p.open(i); f != nil {
			p.segment(f, segmentChecks{})
			f.finish()
		}
		return
	}
}

// readSmall reads a text file that other files are judged by; nil when there is none or it is too large.
func (d *Dump) readSmall(path string) []byte {
	h, err := d.o.FS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = h.Close() }()
	size, err := h.Size()
	if err != nil {
		return nil
	}
	b, err := readAll(h, size, maxTextFile)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return b
}

// topicID reads partition.metadata.
func (d *Dump) topicID(path string) ([16]byte, error) { return parseTopicID(d.readSmall(path)) }

func parseTopicID(b []byte) (id [16]byte, err error) {
	text := strings.TrimRight(string(b), "\n")
	lines := strings.Split(text, "\n")
	if len(lines) != 2 {
		return id, fmt.Errorf("%d lines, not 2", len(lines))
	}
	version, ok := strings.CutPrefix(lines[0], "version:")
	if !ok {
		return id, errors.New("line 1 is not `version: 0`")
	}
	if v := strings.TrimSpace(version); v != "0" {
		if isNumber(v) {
			return id, fmt.Errorf("%w %s", errVersion, v)
		}
		return id, errors.New("line 1 is not `version: 0`")
	}
	value, ok := strings.CutPrefix(lines[1], "topic_id:")
	if !ok {
		return id, errors.New("line 2 has no topic_id")
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(value))
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("topic_id %q is not 22 characters of base64url", strings.TrimSpace(value))
	}
	return [16]byte(raw), nil
}

// errVersion says that a text file has a version that is not known here.
var errVersion = errors.New("version")

func isNumber(s string) bool {
	if s == "" || len(s) > 9 {
		return false
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func lastElement(path string) string { return filepath.Base(path) }

// IsDataDir says whether the path is a data directory, by the files in it.
func IsDataDir(files vfs.FS, path string) bool {
	d := newDump(context.Background(), Options{FS: files}, discard{})
	if info, err := files.Stat(path); err != nil || !info.IsDir() {
		return false
	}
	if d.dataDirOf(path) != nil {
		return true
	}
	list, err := files.ReadDir(path)
	return err == nil && !isPartition(path, list)
}

// IsFile says whether the path is a file.
func IsFile(files vfs.FS, path string) bool {
	info, err := files.Stat(path)
	return err == nil && !info.IsDir()
}

// PartitionOf says which partition a file belongs to, by the name of its directory.
func PartitionOf(path string) (topic string, partition int32, ok bool) {
	topic, partition, _, ok = partitionName(filepath.Dir(path))
	return topic, partition, ok
}
