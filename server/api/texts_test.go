package api

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// packages are the names of all packages of the module.
func packages(t *testing.T) []string {
	t.Helper()
	names := []string{"raft"}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && p != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata") {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(p, ".go") {
			names = append(names, filepath.Base(filepath.Dir(p)))
		}
		return err
	})
	if err != nil || len(names) < 100 {
		t.Fatal(len(names), err)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// No text that a client is told begins with the name of a package, or has one after a colon, whatever way the error took.
func TestTextsNameNoPackages(t *testing.T) {
	prefix := regexp.MustCompile(`(^|: )(` + strings.Join(packages(t), "|") + `): `)
	all := []error{errors.New("quorum: an earlier entry could not be applied"), &record.RecordErrors{Records: []record.RecordError{{Index: 1, Cause: record.ErrNullKey}}}, syscall.EIO}
	for _, c := range codes {
		all = append(all, c.err)
	}
	w := newWorld(t)
	for _, err := range all {
		for _, e := range []error{
			err,
			fmt.Errorf("%w: %w", controller.ErrNotCommitted, err),
			fmt.Errorf("%w: %w", controller.ErrNotController, err),
			fmt.Errorf("%w: /data has 5 bytes free", err),
			fmt.Errorf("%w: flush: %w", isr.ErrOffline, err),
			fmt.Errorf("log: opening /data/t-0: %w", fmt.Errorf("segment: index: %w", err)),
			fmt.Errorf("%w: %w", log.ErrOffline, fmt.Errorf("vfs: %w", err)),
		} {
			if _, s := w.api.adminError(e); s != nil && (prefix.MatchString(*s) || *s == "" || strings.HasPrefix(*s, "not committed: ")) {
				t.Errorf("%v is told as %q", e, *s)
			}
			if s := withoutRooms(e.Error()); prefix.MatchString(s) {
				t.Errorf("%v is told as %q", e, s)
			}
		}
	}
}

// What comes from a disk says where it is and what can be done.
func TestTextsSayWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{
			fmt.Errorf("%w: %w", controller.ErrNotCommitted, fmt.Errorf("%w: /data has 5 bytes free, 8 are reserved", log.ErrReserve)),
			"The disk is full: /data has 5 bytes free, 8 are reserved; make room on it and the broker goes on by itself, or lower keeplog.disk.reserve.bytes",
		},
		{
			fmt.Errorf("%w: %w", log.ErrOffline, fmt.Errorf("log: flush of /data/t-0: %w", syscall.EIO)),
			"A data directory of the broker is offline: flush of /data/t-0: input/output error; check the disk and start the broker again",
		},
		{isr.ErrOffline, "The partition's log is not open on the broker; the broker's own log tells the cause; keeplog check DIR looks at the files"},
		{&controller.Answer{Kind: controller.ErrInvalidConfig, Text: "log: as the controller says"}, "log: as the controller says"},
		{controller.ErrNotCommitted, ""},
		{errors.New("quorum: metadata: anything"), "anything"},
	} {
		if got := errorText(tc.err); got != tc.want {
			t.Errorf("%v:\n got %q\nwant %q", tc.err, got, tc.want)
		}
	}
}
