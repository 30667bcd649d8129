package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newLocalRmCommand(a *app, dir *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm", Short: "Stop the nodes and delete the cluster with all its data", Args: wantsArgs(0, 0),
		RunE: a.run(func(ctx context.Context, _ []string) error { return a.localRemove(ctx, *dir) }),
	}
	cmd.Flags().BoolVarP(&a.flags.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) localRemove(ctx context.Context, dir string) error {
	c, err := a.openLocal(dir)
	if err != nil {
		return err
	}
	up := 0
	for _, n := range c.state.Nodes {
		if _, ok := c.running(n); ok {
			up++
		}
	}
	a.say("%s: %s, %d of them up, %s of data", c.shown, count(int64(len(c.state.Nodes)), "node"), up, size(c.dataSize()))
	if err := a.confirm(ctx, "delete the cluster in "+c.shown); err != nil {
		return err
	}
	return c.remove()
}

// localFresh removes what an earlier up has made in dir.
func (a *app) localFresh(ctx context.Context, dir string) error {
	c, err := a.localDir(dir)
	if err != nil {
		return err
	}
	found, err := c.load()
	if err != nil || !found {
		return err
	}
	return a.localRemove(ctx, dir)
}

// dataSize counts the bytes of the data directories.
func (c *localCluster) dataSize() int64 {
	var total int64
	for _, n := range c.state.Nodes {
		_ = filepath.WalkDir(c.dataDir(n), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
			return nil
		})
	}
	return total
}

// remove stops the nodes and deletes what belongs to the cluster, and nothing else.
func (c *localCluster) remove() error {
	if err := c.acquire(); err != nil {
		return err
	}
	defer c.release()
	c.state.Owner = nil
	if err := c.save(); err != nil {
		c.app.say("warning: %v", err) // a full disk must not keep anyone from making room
	}
	if err := c.stopNodes(c.state.Nodes); err != nil {
		return err
	}
	for _, n := range c.state.Nodes {
		for _, path := range []string{c.dataDir(n), c.propertiesFile(n), c.logFile(n)} {
			if err := os.RemoveAll(path); err != nil {
				return c.fileError(err)
			}
		}
	}
	// The state goes last but one: until then a second rm finds what is left.
	for _, name := range []string{localStateFile, localLockFile} {
		if err := os.Remove(filepath.Join(c.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c.fileError(err)
		}
	}
	c.state = localState{}
	if left := c.others(); len(left) > 0 {
		c.app.say("kept %s: it holds other files (%s)", c.shown, short(strings.Join(left, ", "), 80))
		return nil
	}
	if err := os.Remove(c.dir); err != nil {
		return c.fileError(err)
	}
	c.app.say("deleted %s", c.shown)
	return nil
}

// others are the names in the directory.
func (c *localCluster) others() []string {
	entries, _ := os.ReadDir(c.dir)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
