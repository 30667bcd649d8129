package lint

import (
	"slices"
	"strings"
)

// levels says how high each package stands. A package may import only packages of a lower level.
var levels = map[string]int{
	"vfs":                0,
	"config":             0,
	"protocol":           0,
	"record":             0,
	"internal/invariant": 0,
	"internal/grid":      0,
	"index":              1,
	"segment":            2,
	"log":                3,
	"metadata":           3,
	"security":           3,
	"peer":               4,
	"replication/quorum": 4,
	"internal/dump":      5,
	"controller":         5,
	"replication/isr":    5,
	"group":              6,
	"lag":                6,
	"txn":                6,
	"server/api":         7,
	"server":             8,
	"console":            8,
	"internal/bench":     9,
	"internal/torture":   9,
	"internal/node":      9,
	"cmd/keeplog":        10,
}

// testPackages may be imported by test files and by each other, and may import all others.
var testPackages = []string{"internal/logtest", "internal/clustertest", "internal/lint"}

// testOnly is true for the packages above and for all below test/.
func testOnly(dir string) bool {
	return slices.Contains(testPackages, dir) || strings.HasPrefix(dir, "test/")
}

// owned libraries may be imported only from the directories named.
var owned = map[string][]string{
	"github.com/hashicorp/raft":                  {"replication/quorum"},
	"github.com/hashicorp/raft-boltdb/v2":        {"replication/quorum"},
	"go.etcd.io/bbolt":                           {"replication/quorum"},
	"github.com/tysonmote/gommap":                {"vfs"},
	"github.com/twmb/franz-go/pkg/kerr":          {"server/api", "peer", "cmd/keeplog"},
	"github.com/twmb/franz-go/pkg/kgo":           {"cmd/keeplog", "internal/bench", "internal/torture"},
	"github.com/twmb/franz-go/pkg/kadm":          {"cmd/keeplog", "internal/bench", "internal/torture"},
	"github.com/spf13/cobra":                     {"cmd/keeplog"},
	"github.com/cockroachdb/datadriven":          {},
	"github.com/google/go-cmp/cmp":               {},
	"pgregory.net/rapid":                         {},
	"go.uber.org/goleak":                         {},
	"github.com/rogpeppe/go-internal/testscript": {},
}

// banned packages are imported nowhere.
var banned = map[string]string{
	"log":                                 "logging is log/slog, passed in",
	"io/ioutil":                           "use io and os",
	"github.com/stretchr/testify/assert":  "use go-cmp or plain ifs",
	"github.com/stretchr/testify/require": "use go-cmp or plain ifs",
}

// pure packages decide: they read no clock at all.
var pure = map[string]bool{
	"config": true, "protocol": true, "record": true, "index": true, "metadata": true, "security": true,
	"controller": true, "group": true, "txn": true,
}

// edges are the directories that may read the wall clock.
var edges = []string{"cmd/keeplog", "internal/node", "server"}

// fileUsers are the directories that may call the operating system's file functions.
var fileUsers = []string{"vfs", "cmd/keeplog", "internal/node", "internal/torture", "internal/bench"}

// The limits. They only go down.
const (
	maxFileLines     = 800
	maxFuncLines     = 70
	maxTestFuncLines = 120
	maxFields        = 20
	maxParams        = 4
)
