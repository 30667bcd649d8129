package vfs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// oracle is a second, naive model: whole strings and maps, one set for the cache and one for the disk.
type oracle struct {
	rng   *rand.Rand
	fsys  *vfs.CrashFS
	cache map[string]map[string]*oracleFile // directory → name → file
	disk  map[string]map[string]*oracleFile
	trace []string
	forks map[*vfs.CrashFS]string // made on the way, and what they showed
}

type oracleFile struct {
	cache, disk string
	resized     bool // since the last sync
}

var oracleDirs = []string{"/", "/d1", "/d2"}

func newOracle(t *testing.T, seed uint64) *oracle {
	o := &oracle{
		rng: rand.New(rand.NewPCG(seed, 1)), fsys: vfs.NewCrash(),
		cache: map[string]map[string]*oracleFile{}, disk: map[string]map[string]*oracleFile{},
		forks: map[*vfs.CrashFS]string{},
	}
	for _, d := range oracleDirs {
		must(t, o.fsys.MkdirAll(d, 0o755))
		o.cache[d], o.disk[d] = map[string]*oracleFile{}, map[string]*oracleFile{}
	}
	return o
}

func draw(names map[string]map[string]*oracleFile, contents func(*oracleFile) string) string {
	var lines []string
	for dir, files := range names {
		for name, f := range files {
			lines = append(lines, strings.TrimPrefix(path.Join(dir, name), "/")+"="+runs(contents(f)))
		}
		if dir != "/" {
			lines = append(lines, dir[1:]+"/")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// pick returns a directory, a name in it, and its file or nil.
func (o *oracle) pick() (dir, name string, f *oracleFile) {
	dir = oracleDirs[o.rng.IntN(len(oracleDirs))]
	name = string(rune('a' + o.rng.IntN(3)))
	return dir, name, o.cache[dir][name]
}

func (o *oracle) note(format string, args ...any) {
	o.trace = append(o.trace, fmt.Sprintf(format, args...))
}

// act does one random thing to both.
func (o *oracle) act(t *testing.T) {
	dir, name, f := o.pick()
	full := path.Join(dir, name)
	switch k := o.rng.IntN(20); {
	case k == 0:
		o.note("syncdir %s", dir)
		must(t, o.fsys.SyncDir(dir))
		o.disk[dir] = maps.Clone(o.cache[dir])
	case f == nil:
		o.note("create %s", full)
		must(t, create(t, o.fsys, full).Close())
		o.cache[dir][name] = &oracleFile{}
	case k == 1:
		o.note("remove %s", full)
		must(t, o.fsys.Remove(full))
		delete(o.cache[dir], name)
	case k < 4:
		toDir, toName, replaced := o.pick()
		o.note("rename %s %s", full, path.Join(toDir, toName))
		must(t, o.fsys.Rename(full, path.Join(toDir, toName)))
		if replaced == f {
			return
		}
		delete(o.cache[dir], name)
		o.cache[toDir][toName] = f
	default:
		g := open(t, o.fsys, full, os.O_RDWR)
		o.change(t, g, f, k)
		must(t, g.Close())
	}
}

// change does something to the bytes of f.
func (o *oracle) change(t *testing.T, g vfs.File, f *oracleFile, k int) {
	switch {
	case k < 9:
		off, n := o.rng.IntN(9000), 1+o.rng.IntN(2000)
		s := fill(string(rune('A'+o.rng.IntN(26))), n)
		o.note("write %s [%d,+%d) %s", g.Name(), off, n, s[:1])
		write(t, g, s, int64(off))
		f.cache = splice(f.cache, s, off)
	case k < 11:
		size := o.rng.IntN(10000)
		o.note("truncate %s %d", g.Name(), size)
		must(t, g.Truncate(int64(size)))
		f.resized = f.resized || size != len(f.cache)
		f.cache = splice(f.cache[:min(size, len(f.cache))], "", size)
	case k < 12:
		n, keep := 1+o.rng.IntN(10000), o.rng.IntN(2) == 0
		o.note("allocate %s %d %v", g.Name(), n, keep)
		must(t, g.Allocate(0, int64(n), keep))
		if !keep {
			f.cache = splice(f.cache, "", n)
		}
	case k < 15 && len(f.cache) > 0:
		o.store(t, g, f)
	default:
		o.note("sync %s", g.Name())
		if k%2 == 0 {
			must(t, g.Sync())
		} else {
			must(t, g.SyncData())
		}
		f.disk, f.resized = f.cache, false
	}
}

// store maps a part, stores in two places, and perhaps syncs the mapping.
func (o *oracle) store(t *testing.T, g vfs.File, f *oracleFile) {
	length := 1 + o.rng.IntN(len(f.cache))
	m, err := g.Map(int64(length), true)
	must(t, err)
	for range 2 {
		at := o.rng.IntN(length)
		n := 1 + o.rng.IntN(min(600, length-at))
		s := fill(string(rune('a'+o.rng.IntN(26))), n)
		o.note("store %s [%d,+%d) %s", g.Name(), at, n, s[:1])
		copy(m.Bytes()[at:], s)
		f.cache = splice(f.cache, s, at)
	}
	// With a size on its way the disk holds bytes behind its size; the oracle has no such notion.
	if o.rng.IntN(2) == 0 && len(f.disk) == len(f.cache) && !f.resized {
		o.note("msync %s", g.Name())
		must(t, m.Sync())
		end := min(len(f.cache), (length+4095)&^4095)
		f.disk = splice(f.disk, f.cache[:end], 0)
	}
	must(t, m.Release())
}

// splice is s with p at off, zeros between.
func splice(s, p string, off int) string {
	if len(s) < off {
		s += string(make([]byte, off-len(s)))
	}
	if end := off + len(p); end < len(s) {
		return s[:off] + p + s[end:]
	}
	return s[:off] + p
}

// check compares every view with the oracle.
func (o *oracle) check(t *testing.T, seed uint64) {
	t.Helper()
	cache := draw(o.cache, func(f *oracleFile) string { return f.cache })
	disk := draw(o.disk, func(f *oracleFile) string { return f.disk })
	killed := o.fsys.ForkKilled()
	for _, view := range []struct {
		name string
		fsys *vfs.CrashFS
		want string
	}{
		{"running", o.fsys, cache},
		{"killed", killed, cache},
		{"all kept", o.fsys.Fork(all, 0), cache},
		{"killed, all kept", killed.Fork(all, 0), cache},
		{"none kept", o.fsys.Fork(none, 0), disk},
		{"killed, none kept", killed.Fork(none, 0), disk},
	} {
		got := strings.Fields(tree(t, view.fsys))
		slices.Sort(got)
		if got := strings.Join(got, " "); got != view.want {
			t.Fatalf("seed %d, %s:\n got %s\nwant %s\nafter\n%s", seed, view.name, got, view.want, strings.Join(o.trace, "\n"))
		}
	}
}

// restart goes on with a fork: after a kill, or after a power failure that kept everything or nothing.
func (o *oracle) restart(t *testing.T) {
	old := o.fsys
	switch o.rng.IntN(3) {
	case 0:
		o.note("kill")
		o.fsys = old.ForkKilled()
	case 1:
		o.note("crash, all kept")
		o.fsys = old.Fork(all, 0)
		o.disk = settle(o.cache, func(f *oracleFile) string { return f.cache })
		o.cache = cacheOf(o.disk)
	case 2:
		o.note("crash, none kept")
		o.fsys = old.Fork(none, 0)
		o.disk = settle(o.disk, func(f *oracleFile) string { return f.disk })
		o.cache = cacheOf(o.disk)
	}
	o.forks[old] = tree(t, old)
	o.forks[o.fsys.Fork(none, 0)] = tree(t, o.fsys.Fork(none, 0))
}

// settle is what a crash leaves of names: files whose cache and disk are the same. One under two names stays one.
func settle(names map[string]map[string]*oracleFile, contents func(*oracleFile) string) map[string]map[string]*oracleFile {
	memo := map[*oracleFile]*oracleFile{}
	out := map[string]map[string]*oracleFile{}
	for dir, files := range names {
		out[dir] = map[string]*oracleFile{}
		for name, f := range files {
			if memo[f] == nil {
				memo[f] = &oracleFile{cache: contents(f), disk: contents(f)}
			}
			out[dir][name] = memo[f]
		}
	}
	return out
}

func cacheOf(disk map[string]map[string]*oracleFile) map[string]map[string]*oracleFile {
	out := map[string]map[string]*oracleFile{}
	for dir, files := range disk {
		out[dir] = maps.Clone(files)
	}
	return out
}

// TestRandomAgainstOracle: after any calls the cache is what was done, and a crash that keeps nothing leaves exactly the
// synced bytes and names; renames across directories can leave a file under two names or none, as their directories were
// synced.
func TestRandomAgainstOracle(t *testing.T) {
	for seed := range uint64(40) {
		o := newOracle(t, seed)
		for range 80 {
			o.act(t)
			if o.rng.IntN(6) == 0 {
				o.check(t, seed)
			}
			if o.rng.IntN(15) == 0 {
				o.restart(t)
			}
		}
		for fork, before := range o.forks {
			equal(t, fmt.Sprintf("seed %d: a fork does not change with its kin", seed), tree(t, fork), before)
		}
		// Every survivor is a sound file system that can be crashed again.
		for _, p := range o.fsys.Policies() {
			state := o.fsys.Fork(p, seed)
			before := tree(t, state)
			equal(t, "a fork is synced", tree(t, state.Fork(none, 0)), before)
		}
	}
}

// TestPrefixesAreThePast: while nothing is synced, keeping the first n changes is the state after the n-th call.
func TestPrefixesAreThePast(t *testing.T) {
	for seed := range uint64(40) {
		o := newOracle(t, seed)
		var past []*vfs.CrashFS
		remember := func() {
			n := len(o.fsys.Unsynced())
			for len(past) < n {
				past = append(past, nil) // a call that made several changes
			}
			if len(past) == n {
				past = append(past, o.fsys.Fork(all, 0))
			}
		}
		remember()
		for len(past) < 40 {
			o.actUnsynced(t)
			remember()
		}
		for n, want := range past {
			if want != nil && !o.fsys.Fork(vfs.Policy{Kind: vfs.KeepPrefix, N: n}, 0).Same(want) {
				t.Fatalf("seed %d: prefix of %d is not the past:\n%s", seed, n, strings.Join(o.trace, "\n"))
			}
		}
	}
}

// actUnsynced acts without any sync and without removals, which forget changes.
func (o *oracle) actUnsynced(t *testing.T) {
	dir, name, f := o.pick()
	full := path.Join(dir, name)
	if f == nil {
		must(t, create(t, o.fsys, full).Close())
		o.cache[dir][name] = &oracleFile{}
		return
	}
	g := open(t, o.fsys, full, os.O_RDWR)
	o.change(t, g, f, 4+o.rng.IntN(8))
	must(t, g.Close())
}
