package isr

import (
	"errors"
	"sync/atomic"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// shelf is where a partition's log is: in one data directory, and after a move in another. A call that the old log refuses because
// its copy has taken over goes to that one. What is only read may still come from the old log for a moment: its ends are those
// at which the copy took over.
type shelf struct {
	now    atomic.Pointer[log.Log]
	untold atomic.Bool // that it had lost data when it was opened
}

func newShelf(l *log.Log) *shelf {
	s := &shelf{}
	s.now.Store(l)
	return s
}

// current is the log now.
func (s *shelf) current() *log.Log { return s.now.Load() }

// do calls f, again where the log has moved meanwhile.
func (s *shelf) do(f func(l *log.Log) error) error {
	for {
		l := s.now.Load()
		err := f(l)
		if errors.Is(err, log.ErrMoved) && s.now.Load() != l {
			continue
		}
		return err
	}
}

// get is do for calls with a result.
func get[T any](s *shelf, f func(l *log.Log) (T, error)) (v T, err error) {
	err = s.do(func(l *log.Log) (err error) {
		v, err = f(l)
		return err
	})
	return v, err
}

func (s *shelf) Append(a log.Append) (log.Appended, error) {
	return get(s, func(l *log.Log) (log.Appended, error) { return l.Append(a) })
}

func (s *shelf) AppendReplica(batches []byte, epoch record.Epoch) (log.Appended, error) {
	return get(s, func(l *log.Log) (log.Appended, error) { return l.AppendReplica(batches, epoch) })
}

func (s *shelf) Read(r log.ReadRequest) (*log.Span, error) {
	return get(s, func(l *log.Log) (*log.Span, error) { return l.Read(r) })
}

// lookup is the answer of a search by time.
type lookup struct {
	log.TimeOffset
	ok bool
}

func (s *shelf) OffsetForTime(ts int64, bound record.Offset) (log.TimeOffset, bool, error) {
	v, err := get(s, func(l *log.Log) (lookup, error) {
		at, ok, err := l.OffsetForTime(ts, bound)
		return lookup{at, ok}, err
	})
	return v.TimeOffset, v.ok, err
}

func (s *shelf) TimeOf(o, bound record.Offset) (log.TimeOffset, bool, error) {
	v, err := get(s, func(l *log.Log) (lookup, error) {
		at, ok, err := l.TimeOf(o, bound)
		return lookup{at, ok}, err
	})
	return v.TimeOffset, v.ok, err
}

func (s *shelf) MaxTimestamp(bound record.Offset) (log.TimeOffset, bool, error) {
	v, err := get(s, func(l *log.Log) (lookup, error) {
		at, ok, err := l.MaxTimestamp(bound)
		return lookup{at, ok}, err
	})
	return v.TimeOffset, v.ok, err
}

func (s *shelf) AdvanceStart(o record.Offset) error {
	return s.do(func(l *log.Log) error { return l.AdvanceStart(o) })
}

func (s *shelf) TruncateTo(o record.Offset) error {
	return s.do(func(l *log.Log) error { return l.TruncateTo(o) })
}

func (s *shelf) TruncateFullyAndStartAt(o record.Offset) error {
	return s.do(func(l *log.Log) error { return l.TruncateFullyAndStartAt(o) })
}

func (s *shelf) StartEpoch(e record.Epoch) error {
	return s.do(func(l *log.Log) error { return l.StartEpoch(e) })
}

func (s *shelf) Follow(e record.Epoch) {
	_ = s.do(func(l *log.Log) error { return l.Follow(e) })
}

func (s *shelf) Err() error {
	return s.do(func(l *log.Log) error { return l.Err() })
}

func (s *shelf) Path() string                         { return s.current().Path() }
func (s *shelf) Config() log.Config                   { return s.current().Config() }
func (s *shelf) SetConfig(c log.Config)               { s.current().SetConfig(c) }
func (s *shelf) Size() int64                          { return s.current().Size() }
func (s *shelf) StartOffset() record.Offset           { return s.current().StartOffset() }
func (s *shelf) WrittenEnd() record.Offset            { return s.current().WrittenEnd() }
func (s *shelf) StableEnd() record.Offset             { return s.current().StableEnd() }
func (s *shelf) LatestEpoch() record.Epoch            { return s.current().LatestEpoch() }
func (s *shelf) EpochAt(o record.Offset) record.Epoch { return s.current().EpochAt(o) }
func (s *shelf) SetWatermark(o record.Offset)         { s.current().SetWatermark(o) }
func (s *shelf) CheckpointedWatermark() record.Offset { return s.current().CheckpointedWatermark() }
func (s *shelf) Producers() []log.ProducerState       { return s.current().Producers() }
func (s *shelf) OnProgress(f func())                  { s.current().OnProgress(f) }
func (s *shelf) MissingData() (log.Missing, bool)     { return s.current().MissingData() }
func (s *shelf) Lost() (log.Lost, bool)               { return s.current().Lost() }
func (s *shelf) Available(from, bound record.Offset) (int64, bool) {
	return s.current().Available(from, bound)
}

func (s *shelf) EndOffsetForEpoch(e record.Epoch) (record.Epoch, record.Offset) {
	return s.current().EndOffsetForEpoch(e)
}
