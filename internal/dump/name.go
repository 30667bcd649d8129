package dump

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/record"
)

// name is what a file's name says.
type name struct {
	typ string
	// base is the offset that the name begins with, −1 for none.
	base record.Offset
	// state is the suffix of a file on its way in or out: deleted, cleaned, swap; tmp for one that was never renamed.
	state string
}

// fixedNames are the files with one name.
var fixedNames = map[string]string{
	"leader-epoch-checkpoint":          TypeEpochs,
	"partition.metadata":               TypeTopicID,
	"recovery-point-offset-checkpoint": TypeOffsets,
	"log-start-offset-checkpoint":      TypeOffsets,
	"replication-offset-checkpoint":    TypeOffsets,
	"cleaner-offset-checkpoint":        TypeOffsets,
	"meta.properties":                  TypeProperties,
	".kafka_cleanshutdown":             TypeCleanStop,
	"keeplog-marks":                    TypeMarks,
	"next.spare":                       TypeSpare,
	".lock":                            TypeLock,
	"keeplog-raft.db":                  TypeRaftStore,
	"quorum-state":                     TypeKRaftVotes,
	"bootstrap.checkpoint":             TypeKRaftSnap,
}

// offsetNames are the suffixes of names that begin with an offset.
var offsetNames = map[string]string{
	"log":        TypeSegment,
	"index":      TypeIndex,
	"timeindex":  TypeTimeIndex,
	"txnindex":   TypeTxnIndex,
	"snapshot":   TypeSnapshot,
	"window":     TypeWindow,
	"torn":       TypeTorn,
	"bad":        TypeBad,
	"checkpoint": TypeKRaftSnap,
}

// parseName classifies a file by its name.
func parseName(path string) name {
	s := filepath.Base(path)
	n := name{typ: TypeForeign, base: -1}
	for _, state := range [...]string{"deleted", "cleaned", "swap", "tmp"} {
		if rest, ok := strings.CutSuffix(s, "."+state); ok {
			s, n.state = rest, state
			break
		}
	}
	if typ, ok := fixedNames[s]; ok {
		n.typ = typ
		return n
	}
	if strings.HasPrefix(s, "keeplog-snapshot-") {
		n.typ = TypeRaftSnap
		return n
	}
	digits, rest := s, ""
	if i := strings.IndexAny(s, ".-"); i >= 0 {
		digits, rest = s[:i], s[i+1:]
	}
	suffix := rest
	if i := strings.LastIndexByte(rest, '.'); i >= 0 {
		suffix = rest[i+1:]
	}
	typ, ok := offsetNames[suffix]
	if !ok {
		return n
	}
	if len(digits) == 20 {
		if v, err := strconv.ParseInt(digits, 10, 64); err == nil {
			n.typ, n.base = typ, record.Offset(v)
			return n
		}
	}
	if typ == TypeBad {
		n.typ = typ
	}
	return n
}

// cure is what repairs a file of this kind as a whole: what the server makes anew is removed.
func (n name) cure() fix {
	switch n.typ {
	case TypeIndex, TypeTimeIndex, TypeTxnIndex, TypeSnapshot, TypeWindow, TypeEpochs, TypeOffsets, TypeSpare:
		return fix{what: fixRemove}
	}
	return fix{}
}

// partitionName splits the name of a partition's directory. state is delete, stray or future for one that was renamed.
func partitionName(dir string) (topic string, partition int32, state string, ok bool) {
	s := filepath.Base(dir)
	for _, st := range [...]string{"delete", "stray", "future"} {
		if rest, cut := strings.CutSuffix(s, "-"+st); cut {
			if i := strings.LastIndexByte(rest, '.'); i > 0 && len(rest)-i-1 == 32 {
				s, state = rest[:i], st
				break
			}
		}
	}
	i := strings.LastIndexByte(s, '-')
	if i <= 0 {
		return "", 0, "", false
	}
	n, err := strconv.ParseInt(s[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s[i+1:] {
		return "", 0, "", false
	}
	return s[:i], int32(n), state, true
}
