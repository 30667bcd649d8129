package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	localStateFile    = "cluster.json"
	localLockFile     = "lock"
	localStateVersion = 1
)

// localState is what cluster.json holds.
type localState struct {
	Version int          `json:"version"`
	Keeplog string       `json:"keeplog"` // version of the program that wrote it
	Set     []string     `json:"set,omitempty"`
	Owner   *processID   `json:"owner,omitempty"` // the "local up" that stops the nodes when it ends
	Nodes   []*localNode `json:"nodes"`
}

// localNode is one node of a cluster.
type localNode struct {
	ID          int32      `json:"id"`
	Kafka       int        `json:"kafka_port"`
	Controller  int        `json:"controller_port,omitempty"`
	Replication int        `json:"replication_port,omitempty"`
	Process     *processID `json:"process,omitempty"` // the last one that was started

	// Of a torture: members to join instead of a list of voters, and further properties.
	join string
	set  []string
}

func (n *localNode) address() string { return localAddress(n.Kafka) }

// localCluster is the directory of a cluster.
type localCluster struct {
	app   *app
	dir   string // absolute
	shown string // as the person named it
	state localState
	lock  *os.File
	// gates are the ports that a torture puts before those of each node; nil: the nodes are told each other's own.
	gates map[int32]*localNode
}

// openLocal opens the cluster in dir for reading: what it says may be old by the time it is used.
func (a *app) openLocal(dir string) (*localCluster, error) {
	c, err := a.localDir(dir)
	if err != nil {
		return nil, err
	}
	found, err := c.load()
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, c.missing()
	}
	return c, nil
}

// lockLocal opens the cluster in dir for a command that changes it; the caller calls release.
func (a *app) lockLocal(dir string) (*localCluster, error) {
	c, err := a.openLocal(dir)
	if err != nil {
		return nil, err
	}
	return c, c.acquire()
}

func (a *app) localDir(dir string) (*localCluster, error) {
	if dir == "" {
		return nil, usagef("--dir: no directory")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, failf("%s: %s", dir, lastPart(err))
	}
	return &localCluster{app: a, dir: abs, shown: dir}, nil
}

func (c *localCluster) missing() *cliError {
	return &cliError{
		msg: fmt.Sprintf("no cluster in %s", c.shown), code: "NO_CLUSTER",
		try: localCommand(c.shown, "up"), exit: exitFailed,
	}
}

// load reads cluster.json. found is false where the directory does not exist or is empty.
func (c *localCluster) load() (found bool, err error) {
	raw, err := os.ReadFile(filepath.Join(c.dir, localStateFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, c.foreign()
	case err != nil:
		return false, c.fileError(err)
	}
	var state localState
	if err := json.Unmarshal(raw, &state); err != nil {
		return false, &cliError{
			msg: fmt.Sprintf("%s: damaged (%s)", filepath.Join(c.shown, localStateFile), err), code: "DAMAGED", exit: exitDamaged,
			why: damagedState, try: c.asideDamage(),
		}
	}
	if state.Version != localStateVersion {
		return false, &cliError{
			msg:  fmt.Sprintf("%s is of another version (%d, this program reads %d)", filepath.Join(c.shown, localStateFile), state.Version, localStateVersion),
			why:  fmt.Sprintf("keeplog %s made it, this is keeplog %s", state.Keeplog, versionText()),
			code: "OTHER_VERSION", exit: exitFailed, try: "that version, or another directory: " + localCommand("DIR", "up"),
		}
	}
	if err := state.check(); err != nil {
		return false, &cliError{
			msg: fmt.Sprintf("%s: damaged (%s)", filepath.Join(c.shown, localStateFile), err), code: "DAMAGED", exit: exitDamaged,
			why: damagedState, try: c.asideDamage(),
		}
	}
	c.state = state
	return true, nil
}

const damagedState = "the data of the nodes is not in this file: it stays as it is"

// asideDamage is what to do where nobody knows any more which nodes there are.
func (c *localCluster) asideDamage() string {
	return "end the nodes by hand, and delete " + c.shown + "; or another directory: " + localCommand("DIR", "up")
}

func (s *localState) check() error {
	if len(s.Nodes) == 0 || len(s.Nodes) > localMaxNodes {
		return fmt.Errorf("%d nodes", len(s.Nodes))
	}
	for i, n := range s.Nodes {
		if n == nil || n.ID != int32(i+1) || n.Kafka < 1 || n.Kafka > 65535 {
			return fmt.Errorf("node %d is not whole", i+1)
		}
	}
	return nil
}

// foreign refuses a directory that holds something else.
func (c *localCluster) foreign() error {
	entries, err := os.ReadDir(c.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return c.fileError(err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == localLockFile })
	if len(entries) == 0 {
		return nil
	}
	return &cliError{
		msg: fmt.Sprintf("%s is not the directory of a local cluster", c.shown), code: "FOREIGN_DIRECTORY", exit: exitFailed,
		why: fmt.Sprintf("it has no %s and holds other files, %s for one", localStateFile, entries[0].Name()),
		try: localCommand(filepath.Join(c.shown, localDefaultDir), "up"),
	}
}

// acquire waits for the lock and reads the state again.
func (c *localCluster) acquire() error {
	f, err := os.OpenFile(filepath.Join(c.dir, localLockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return c.fileError(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		c.app.say("another keeplog local command is at work in %s; waiting for it", c.shown)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != nil {
			f.Close()
			return c.fileError(err)
		}
	} else if err != nil {
		f.Close()
		return c.fileError(err)
	}
	c.lock = f
	if _, err := c.load(); err != nil {
		c.release()
		return err
	}
	return nil
}

// release gives the lock back.
func (c *localCluster) release() {
	if c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
}

// save writes cluster.json; the caller holds the lock.
func (c *localCluster) save() error {
	c.state.Version, c.state.Keeplog = localStateVersion, versionText()
	raw, err := json.MarshalIndent(&c.state, "", "  ")
	if err != nil {
		return err
	}
	return c.write(localStateFile, append(raw, '\n'))
}

// write replaces a file of the directory as a whole.
func (c *localCluster) write(name string, content []byte) error {
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path+".tmp", content, 0o644); err != nil {
		_ = os.Remove(path + ".tmp")
		return c.fileError(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return c.fileError(err)
	}
	return nil
}

// fileError explains what the file system answered.
func (c *localCluster) fileError(err error) error {
	path := c.shown
	var pe *fs.PathError
	if errors.As(err, &pe) {
		path = c.asShown(pe.Path)
	}
	e := failf("%s: %s", path, lastPart(err))
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.code, e.why = "DISK_FULL", "the disk that holds "+c.shown+" is full"
		e.try = "make room on it, or another disk: " + localCommand("DIR", "up")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.why, e.try = "this user may not write there", localCommand("DIR", "up")
	case errors.Is(err, syscall.ENOTDIR):
		e.why, e.try = "a file stands where a directory must be", localCommand("DIR", "up")
	}
	return e
}

// asShown is a path below the directory as the person named it.
func (c *localCluster) asShown(path string) string {
	if rest, ok := strings.CutPrefix(path, c.dir); ok {
		return c.shown + rest
	}
	return path
}

func (c *localCluster) dataDir(n *localNode) string {
	return filepath.Join(c.dir, strconv.Itoa(int(n.ID)))
}

func (c *localCluster) propertiesFile(n *localNode) string {
	return filepath.Join(c.dir, fmt.Sprintf("node-%d.properties", n.ID))
}

func (c *localCluster) logFile(n *localNode) string {
	return filepath.Join(c.dir, fmt.Sprintf("node-%d.log", n.ID))
}

// named returns the nodes with these ids, all when there are none.
func (c *localCluster) named(ids []string) ([]*localNode, error) {
	if len(ids) == 0 {
		return c.state.Nodes, nil
	}
	var out []*localNode
	for _, id := range ids {
		at := slices.IndexFunc(c.state.Nodes, func(n *localNode) bool { return strconv.Itoa(int(n.ID)) == id })
		if at < 0 {
			e := usagef("no node %s in %s", id, c.shown)
			e.why = "its nodes are 1 to " + strconv.Itoa(len(c.state.Nodes))
			if len(c.state.Nodes) == 1 {
				e.why = "its only node is 1"
			}
			return nil, e
		}
		if !slices.Contains(out, c.state.Nodes[at]) {
			out = append(out, c.state.Nodes[at])
		}
	}
	return out, nil
}

// addresses are those of all nodes, for clients.
func (c *localCluster) addresses() string {
	all := make([]string, len(c.state.Nodes))
	for i, n := range c.state.Nodes {
		all[i] = n.address()
	}
	return strings.Join(all, ",")
}
