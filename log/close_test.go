package log

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// spyFS calls synced after each flush of a file.
type spyFS struct {
	vfs.FS
	synced func(name string)
}

type spyFile struct {
	vfs.File
	fs *spyFS
}

func (s *spyFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &spyFile{f, s}, nil
}

func (f *spyFile) SyncData() error {
	err := f.File.SyncData()
	if f.fs.synced != nil {
		f.fs.synced(f.Name())
	}
	return err
}

// What is marked at the end of a log is what its last flush has made durable: no roll by age and no append comes in between.
func TestNothingComesBetweenTheLastFlushAndTheEnd(t *testing.T) {
	disk := vfs.NewCrash()
	spy := &spyFS{FS: disk}
	r := newRig(t, spy)
	r.config.Segment.Age = time.Hour
	l := r.log(0)
	r.fill(l, 10)
	if _, _, err := r.write(l, sent{}); err != nil { // so that there is something to flush
		t.Fatal(err)
	}
	appended := make(chan error, 1)
	spy.synced = func(name string) {
		if strings.HasSuffix(name, segment.LogExt) {
			spy.synced = nil
			l.tickRoll(r.now.Add(2 * time.Hour))
			go func() {
				_, err := l.Append(Append{Batch: r.batch(sent{}), NowMs: r.now.UnixMilli()})
				appended <- err
			}()
		}
	}
	l.dir.clean = false
	must(t, l.closeClean())
	must(t, l.dir.syncMarks())
	if spy.synced != nil {
		t.Fatal("nothing was flushed")
	}
	if err := <-appended; !errors.Is(err, ErrClosed) {
		t.Fatalf("an append in between: %v", err)
	}
	if n := len(l.Segments()); n != 1 {
		t.Fatalf("%d segments", n)
	}
	r.fs = disk.Fork(vfs.Policy{Kind: vfs.KeepNone}, 1)
	r.open()
	l = r.log(0)
	if m, lost := l.MissingData(); lost {
		t.Fatalf("%+v is missing", m)
	}
	r.verify(l)
}
