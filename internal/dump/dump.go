package dump

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// Options say what a dump shows and checks.
type Options struct {
	// FS holds the files; they are only read.
	FS vfs.FS
	// Summary leaves out batches, entries and lines: a file is one FileEnd, and its problems.
	Summary bool
	// Records shows the records of the batches, and checks them.
	Records bool
	// Verify checks the records too when they are not shown, and compares all files of a partition with each other.
	Verify bool
	// From and To bound what is shown of segments.
	From, To Bound
	// Decode reads the records of an internal topic: "offsets", "txn", or empty.
	Decode string
	// Raft shows the entries of the Raft store.
	Raft bool
	// Progress is called now and then with the bytes read so far; may be nil.
	Progress func(bytes int64)
	// Codecs unpack batches; nil makes a new set.
	Codecs *record.Codecs
}

// Bound is an offset or a time; the zero Bound is none.
type Bound struct {
	Set    bool
	Time   bool  // Value is ms since 1970, else an offset
	Value  int64 // inclusive on both sides
	Origin string
}

// shows says whether something with the offsets first..last and the times low..high lies between From and To.
func (o *Options) shows(first, last record.Offset, low, high int64) bool {
	return (!o.From.Set || o.From.Time && high >= o.From.Value || !o.From.Time && int64(last) >= o.From.Value) &&
		(!o.To.Set || o.To.Time && low <= o.To.Value || !o.To.Time && int64(first) <= o.To.Value)
}

// Dump is one run. Not for concurrent use.
type Dump struct {
	o       Options
	ctx     context.Context
	sink    Sink
	codecs  *record.Codecs
	win     window // of the segment that is read
	scratch []byte // unpacked records
	whole   []byte // a batch that does not fit the window
	total   Total
	err     error // of the sink or the context: the dump is over
	data    map[string]*dataDir
	raft    map[string]*inspection
	topics  map[string][16]byte       // ids by topic, from the metadata; nil when it is not known
	placed  map[[16]byte]*placedTopic // topics of the data directory that is read, by id; nil when it has no metadata log
	// problems of Damage that Repair can mend, kept only for it
	keep func(Problem)
}

// Run dumps the paths in order and returns what was counted. It goes through to the end whatever it meets: what is wrong with a file is an Item. The
// error is about the run itself: a path that does not exist, a sink that does not take more, a context that is done.
func Run(ctx context.Context, o Options, sink Sink, paths ...string) (Total, error) {
	d := newDump(ctx, o, sink)
	return d.run(paths)
}

func newDump(ctx context.Context, o Options, sink Sink) *Dump {
	if o.Codecs == nil {
		o.Codecs = record.NewCodecs()
	}
	return &Dump{o: o, ctx: ctx, sink: sink, codecs: o.Codecs, data: map[string]*dataDir{}, raft: map[string]*inspection{}}
}

func (d *Dump) run(paths []string) (Total, error) {
	var missing []error
	defer d.closeRaft()
	for _, p := range paths {
		if err := d.path(p); err != nil {
			missing = append(missing, err)
		}
		if d.err != nil {
			return d.total, d.err
		}
	}
	d.put(&d.total)
	if d.err == nil {
		d.err = d.sink.Close()
	}
	return d.total, errors.Join(append(missing, d.err)...)
}

func (d *Dump) path(p string) error {
	info, err := d.o.FS.Stat(p)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return d.directory(p)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", p)
	}
	d.loneFile(p)
	return nil
}

func (d *Dump) put(i Item) {
	if d.err != nil {
		return
	}
	if d.err = d.ctx.Err(); d.err == nil {
		d.err = d.sink.Put(i)
	}
}

// stopped says that nothing more is wanted.
func (d *Dump) stopped() bool {
	if d.err == nil {
		d.err = d.ctx.Err()
	}
	return d.err != nil
}

// file is a file under the lens.
type file struct {
	vfs.File
	d    *Dump
	path string
	name name
	size int64
	end  FileEnd
	// shown is false where entries are left out.
	shown bool
	// spared makes damage a note, with this reason: the file is on its way out.
	spared string
}

// open opens a file and says so; nil when it went away or cannot be read, which is reported.
func (d *Dump) open(path string, n name) *file {
	f := &file{d: d, path: path, name: n, shown: !d.o.Summary}
	f.end = FileEnd{Path: path, Type: n.typ, First: -1, Last: -1, MinTime: -1, MaxTime: -1}
	if n.state != "" {
		f.spared = "the name ends in ." + n.state + ": it is removed or finished at the next start"
	}
	handle, err := d.o.FS.OpenFile(path, os.O_RDONLY, 0)
	if err == nil {
		f.size, err = handle.Size()
	}
	if errors.Is(err, fs.ErrNotExist) {
		d.put(&Problem{Severity: Note, File: path, Position: -1, End: -1, First: -1, Last: -1, Text: "went away while it was read"})
		d.total.Notes++
		return nil
	}
	d.total.Files++
	d.put(&FileStart{Path: path, Type: n.typ, Size: f.size, State: n.state})
	if err != nil {
		f.damage(-1, -1, "cannot be read: %v", err)
		f.finish()
		return nil
	}
	f.File = handle
	f.end.Size = f.size
	return f
}

// finish closes the file and its part of the output.
func (f *file) finish() {
	if f.File != nil {
		_ = f.Close() // read-only
	}
	f.d.total.Bytes += f.size
	if f.d.o.Progress != nil {
		f.d.o.Progress(f.d.total.Bytes)
	}
	f.d.put(&f.end)
}

// damage reports something wrong in the bytes from..to (−1, −1: the whole file).
func (f *file) damage(from, to int64, format string, args ...any) {
	f.report(Problem{Severity: Damage, Position: from, End: to, First: -1, Last: -1, Text: fmt.Sprintf(format, args...)})
}

func (f *file) note(from, to int64, format string, args ...any) {
	f.report(Problem{Severity: Note, Position: from, End: to, First: -1, Last: -1, Text: fmt.Sprintf(format, args...)})
}

func (f *file) unsupported(from, to int64, format string, args ...any) {
	f.report(Problem{Severity: Unsupported, Position: from, End: to, First: -1, Last: -1, Text: fmt.Sprintf(format, args...)})
}

// extent is a range of bytes, to exclusive.
type extent struct{ from, to int64 }

// nowhere is the file as a whole.
var nowhere = extent{-1, -1}

// judge is damage where the bytes were promised, else a note: above the stable mark the server trusts no index.
func (f *file) judge(promised bool, at extent, text string) {
	if promised {
		f.damage(at.from, at.to, "%s", text)
		return
	}
	f.note(at.from, at.to, "%s; the next start makes it anew", text)
}

// report counts a problem and passes it on.
func (f *file) report(p Problem) {
	p.File = f.path
	if p.Severity == Damage && f.spared != "" {
		p.Severity, p.Hint, p.fix = Note, f.spared, fix{}
	}
	if p.Severity == Damage && p.fix.what == fixNone {
		p.fix = f.name.cure()
	}
	switch p.Severity {
	case Damage:
		f.end.Damage++
		f.d.total.Damage++
		if f.d.keep != nil {
			f.d.keep(p)
		}
	case Unsupported:
		f.d.total.Unsupported++
	case Note:
		f.end.Notes++
		f.d.total.Notes++
	}
	f.d.put(&p)
}

// entry shows one entry of the file.
func (f *file) entry(what string, fields ...Field) {
	f.end.Entries++
	if f.shown {
		f.d.put(&Entry{File: f.path, What: what, Fields: fields})
	}
}

// stable is what is known of the offset below which everything must be on the disk.
type stable struct {
	// known is false for a file without a data directory around it: then everything is taken as promised.
	known  bool
	offset record.Offset
	// own says that it comes from our marks and not from Kafka's recovery point.
	own bool
	// end is where the log ended at a clean stop, if hasEnd.
	end    record.Offset
	hasEnd bool
}

// everything is the mark of a directory that was stopped cleanly.
const everything record.Offset = math.MaxInt64

// promised says whether the batch with this offset must be readable.
func (s stable) promised(o record.Offset) bool { return !s.known || o < s.offset }

func (s stable) String() string {
	switch {
	case !s.known:
		return "no mark is known"
	case s.offset == everything:
		return "the directory was stopped cleanly"
	}
	return fmt.Sprintf("offset %d", s.offset)
}
