package quorum

import (
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// MemStore is a store in memory that can crash, for tests: what a call has stored is there after a crash, if the call
// returned before it. The zero value is empty and ready.
type MemStore struct {
	mu     sync.Mutex
	logs   map[uint64]raft.Log
	values map[string][]byte
	dead   bool
	// CrashAfter crashes the store at that call that changes it, counted from 1; 0 never does. Half says that the call's
	// changes are there after the crash, though it returned an error.
	CrashAfter int
	Half       bool
	calls      int
}

// ErrCrashed is the answer of a store that has crashed.
var ErrCrashed = errors.New("quorum: the store has crashed")

// errNotFound has the text that Raft looks for.
var errNotFound = errors.New("not found")

// Crash takes the store away from who uses it, and returns what is left of it.
func (s *MemStore) Crash() *MemStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	next := &MemStore{logs: map[uint64]raft.Log{}, values: map[string][]byte{}}
	for i, l := range s.logs {
		next.logs[i] = l
	}
	for k, v := range s.values {
		next.values[k] = slices.Clone(v)
	}
	return next
}

// Calls counts the calls that changed the store.
func (s *MemStore) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// change makes a change, or crashes.
func (s *MemStore) change(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return ErrCrashed
	}
	if s.logs == nil {
		s.logs, s.values = map[uint64]raft.Log{}, map[string][]byte{}
	}
	s.calls++
	if s.calls == s.CrashAfter {
		s.dead = true
		if s.Half {
			f()
		}
		return ErrCrashed
	}
	f()
	return nil
}

// bounds are the first and the last index, 0 when the log is empty.
func (s *MemStore) bounds() (first, last uint64) {
	for i := range s.logs {
		if first == 0 || i < first {
			first = i
		}
		last = max(last, i)
	}
	return first, last
}

// FirstIndex is the first entry's index.
func (s *MemStore) FirstIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, _ := s.bounds()
	return first, nil
}

// LastIndex is the last entry's index.
func (s *MemStore) LastIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, last := s.bounds()
	return last, nil
}

// GetLog reads an entry.
func (s *MemStore) GetLog(index uint64, l *raft.Log) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.logs[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	*l = found
	return nil
}

// StoreLog stores an entry.
func (s *MemStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries.
func (s *MemStore) StoreLogs(logs []*raft.Log) error {
	return s.change(func() {
		for _, l := range logs {
			s.logs[l.Index] = *l
		}
	})
}

// DeleteRange deletes entries.
func (s *MemStore) DeleteRange(from, to uint64) error {
	return s.change(func() {
		for i := from; i <= to; i++ {
			delete(s.logs, i)
		}
	})
}

// Set stores a value.
func (s *MemStore) Set(key, value []byte) error {
	return s.change(func() { s.values[string(key)] = slices.Clone(value) })
}

// SetUint64 stores a number.
func (s *MemStore) SetUint64(key []byte, value uint64) error { return s.Set(key, encodeUint64(value)) }

// Get reads a value.
func (s *MemStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return slices.Clone(v), nil
}

// GetUint64 reads a number.
func (s *MemStore) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	return decodeUint64(v), nil
}

// Close does nothing.
func (s *MemStore) Close() error { return nil }
