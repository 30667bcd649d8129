package isr

import "sync"

// Watcher is told that something moved in a partition: the high watermark, the log's end or start, its role, or that the
// partition is gone. Progress is called from any goroutine, with no lock held, must not block, and may come more often
// than needed.
type Watcher interface {
	Progress()
}

// Watch is a place in one partition's list of watchers; its memory is the watcher's own. The zero value is not in a list.
type Watch struct {
	next, prev *Watch
	list       *watchList
	watcher    Watcher
}

// watchList is the watchers of a partition.
type watchList struct {
	mu    sync.Mutex
	head  *Watch
	count int
}

// Watch puts w into the partition's list, to be told of every move until Stop. w must not be in a list.
func (p *Partition) Watch(w *Watch, watcher Watcher) { p.watchers.add(w, watcher) }

func (l *watchList) add(w *Watch, watcher Watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.list != nil {
		panic("isr: a Watch may be in one list only")
	}
	w.list, w.watcher, w.prev, w.next = l, watcher, nil, l.head
	if l.head != nil {
		l.head.prev = w
	}
	l.head = w
	l.count++
}

// Stop takes w out of its list; a Progress that is under way may still arrive. Stopping twice does nothing.
func (w *Watch) Stop() {
	l := w.list
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.list, w.watcher, w.prev, w.next = nil, nil, nil, nil
	l.count--
}

// notify tells all watchers. The list is copied under its lock so that a watcher may stop from within Progress.
func (l *watchList) notify() {
	var small [16]Watcher
	l.mu.Lock()
	if l.head == nil {
		l.mu.Unlock()
		return
	}
	all := small[:0]
	for w := l.head; w != nil; w = w.next {
		all = append(all, w.watcher)
	}
	l.mu.Unlock()
	for _, w := range all {
		w.Progress()
	}
}
