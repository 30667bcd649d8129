package log

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// A file that the disk does not give is not taken for one that is missing: the opening of the directory, or of the one log, is
// refused with the file's name, and when the disk gives it again nothing was lost.
func TestUnreadableFilesRefuseTheOpening(t *testing.T) {
	ofDir := []string{MetaFile, CleanFile, RecoveryPointFile, LogStartFile, WatermarkFile, CleanerFile, MarksFile}
	ofLog := []string{EpochFile, "*" + WindowExt, PartitionFile}
	for i, file := range append(ofDir, ofLog...) {
		for _, op := range []vfs.Op{vfs.OpRead, vfs.OpOpen, vfs.OpSize} {
			for _, clean := range []bool{true, false} {
				unreadable(t, unread{file, i < len(ofDir), op, clean})
			}
		}
	}
}

// unread is a file that the disk does not give at an opening.
type unread struct {
	file  string
	ofDir bool
	op    vfs.Op
	clean bool
}

func unreadable(t *testing.T, u unread) {
	file, ofDir, op, clean := u.file, u.ofDir, u.op, u.clean
	what := fmt.Sprintf("%s, %s, clean %v", file, op, clean)
	crash := vfs.NewCrash()
	r := newRig(t, crash)
	must(t, r.dir.SetMeta(Meta{NodeID: 1, ClusterID: "AAAAAAAAAAAAAAAAAAAAAA", DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA"}))
	l := r.log(0)
	must(t, l.StartEpoch(2))
	for i := range 4 {
		r.add(l, sent{id: 7, seq: record.Sequence(i)})
	}
	must(t, l.AdvanceStart(2))
	l.SetWatermark(4)
	must(t, r.dir.Close())
	if !clean {
		r.open()
		l = r.log(0)
		l.SetWatermark(4)
		r.add(l, sent{id: 7, seq: 4})
		crash = crash.Kill()
	}
	faulty := vfs.NewFaulty(crash)
	r.fs = faulty
	if file == CleanFile && !clean {
		return
	}
	in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{op}, Path: file, Err: syscall.EIO, Sticky: true})
	err := r.tryOpen()
	if err == nil {
		if ofDir {
			t.Errorf("%s: the directory opens", what)
			return
		}
		_, err = r.dir.OpenLog(Identity{"t", 0, testTopic}, r.config)
		must(t, r.dir.Abandon())
	} else if !ofDir {
		t.Errorf("%s: the directory does not open", what)
	}
	if !errors.Is(err, syscall.EIO) || !strings.Contains(fmt.Sprint(err), strings.TrimPrefix(file, "*")) {
		t.Errorf("%s: %v", what, err)
	}
	faulty.Heal(in)
	must(t, r.tryOpen())
	if _, was := r.dir.CleanStop(); ofDir && was != clean {
		t.Errorf("%s: then a clean stop is %v", what, was)
	}
	l = r.log(0)
	end, last := record.Offset(4), record.Sequence(3)
	if !clean {
		end, last = 5, 4
	}
	if p := l.Producers(); l.StartOffset() != 2 || l.WrittenEnd() != end || l.EpochAt(3) != 2 || l.CheckpointedWatermark() != 4 ||
		len(p) != 1 || p[0].Batches != int(end) || p[0].LastSequence != last {
		t.Errorf("%s: then start %d, end %d, epoch %d, watermark %d, producers %+v", what, l.StartOffset(), l.WrittenEnd(), l.EpochAt(3), l.CheckpointedWatermark(), p)
	}
	must(t, r.dir.Close())
}

// What is in a damaged checkpoint is known from the marks.
func TestDamagedCheckpointsAreNoLoss(t *testing.T) {
	for _, file := range []string{RecoveryPointFile, LogStartFile, WatermarkFile, CleanerFile, path.Join("t-0", EpochFile)} {
		r := newRig(t, vfs.NewCrash())
		l := r.log(0)
		must(t, l.StartEpoch(2))
		for range 4 {
			r.add(l, sent{})
		}
		must(t, l.AdvanceStart(2))
		must(t, r.dir.Close())
		r.overwrite(file, []byte("0\n9\nrubbish"))
		r.open()
		l = r.log(0)
		if l.StartOffset() != 2 || l.WrittenEnd() != 4 || l.EpochAt(3) != 2 {
			t.Errorf("%s: start %d, end %d, epoch %d", file, l.StartOffset(), l.WrittenEnd(), l.EpochAt(3))
		}
		must(t, r.dir.Close())
	}
}
