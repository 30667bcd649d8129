package dump

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/record"
)

// text reads the file as text; ok is false when it was reported as unreadable.
func (f *file) text() (string, bool) {
	b, err := readAll(f, f.size, maxTextFile)
	if err != nil {
		f.damage(-1, -1, "cannot be read: %v", err)
		return "", false
	}
	return string(b), true
}

// wrongText reports text that does not follow its format.
func (f *file) wrongText(err error) {
	if errors.Is(err, errVersion) {
		f.unsupported(-1, -1, "%v: written by a newer version", err)
		return
	}
	f.damage(-1, -1, "%v", err)
}

// checkpointLines takes the head off a checkpoint file: a line with version 0, a line with the count, then as many lines.
func checkpointLines(text string) ([]string, error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 2 {
		return nil, errors.New("it has no version and count")
	}
	if lines[0] != "0" {
		if isNumber(lines[0]) {
			return nil, fmt.Errorf("%w %s", errVersion, lines[0])
		}
		return nil, fmt.Errorf("line 1 is %.40q, not a version", lines[0])
	}
	count, err := strconv.ParseInt(lines[1], 10, 32)
	if err != nil || count < 0 {
		return nil, fmt.Errorf("line 2 is %.40q, not a count", lines[1])
	}
	lines = lines[2:]
	if n := len(lines); n == 0 || lines[n-1] != "" {
		return lines, fmt.Errorf("line %d is cut short: it has no line end", n+2)
	}
	lines = lines[:len(lines)-1]
	if int64(len(lines)) != count {
		return lines, fmt.Errorf("%d entries announced, %d are there", count, len(lines))
	}
	return lines, nil
}

// pointLine is a line of an offset checkpoint.
type pointLine struct {
	topic     string
	partition int32
	offset    record.Offset
}

func parsePoint(line string) (p pointLine, err error) {
	words := strings.Split(line, " ")
	if len(words) != 3 || words[0] == "" {
		return p, fmt.Errorf("%.60q is not topic, partition, offset", line)
	}
	n, errN := strconv.ParseInt(words[1], 10, 32)
	o, errO := strconv.ParseInt(words[2], 10, 64)
	if errN != nil || errO != nil || n < 0 || o < 0 {
		return p, fmt.Errorf("%.60q is not topic, partition, offset", line)
	}
	return pointLine{words[0], int32(n), record.Offset(o)}, nil
}

// offsets dumps one of Kafka's four offset checkpoints.
func (f *file) offsets() {
	text, ok := f.text()
	if !ok {
		return
	}
	lines, err := checkpointLines(text)
	if err != nil {
		f.wrongText(err)
	}
	seen := map[string]bool{}
	for i, line := range lines {
		p, err := parsePoint(line)
		if err != nil {
			f.damage(-1, -1, "line %d: %v", i+3, err)
			continue
		}
		key := p.topic + " " + decimal(int64(p.partition))
		if seen[key] {
			f.damage(-1, -1, "line %d: %s-%d is there twice", i+3, p.topic, p.partition)
		}
		seen[key] = true
		f.entry("offset", Field{"topic", p.topic}, Field{"partition", p.partition}, Field{"offset", p.offset})
	}
}

func (d *Dump) readOffsets(path string) map[string]record.Offset {
	points := map[string]record.Offset{}
	lines, _ := checkpointLines(string(d.readSmall(path)))
	for _, line := range lines {
		if p, err := parsePoint(line); err == nil {
			points[p.topic+" "+decimal(int64(p.partition))] = p.offset
		}
	}
	return points
}

func parseEpoch(line string) (e epochStart, err error) {
	a, b, ok := strings.Cut(line, " ")
	epoch, errE := strconv.ParseInt(a, 10, 32)
	start, errS := strconv.ParseInt(b, 10, 64)
	if !ok || errE != nil || errS != nil || epoch < 0 || start < 0 {
		return e, fmt.Errorf("%.60q is not epoch and start offset", line)
	}
	return epochStart{record.Epoch(epoch), record.Offset(start)}, nil
}

// epochs dumps leader-epoch-checkpoint.
func (f *file) epochs() {
	text, ok := f.text()
	if !ok {
		return
	}
	lines, err := checkpointLines(text)
	if err != nil {
		f.wrongText(err)
	}
	prev := epochStart{epoch: -1, start: -1}
	for i, line := range lines {
		e, err := parseEpoch(line)
		if err != nil {
			f.damage(-1, -1, "line %d: %v", i+3, err)
			continue
		}
		if e.epoch <= prev.epoch || e.start <= prev.start {
			f.damage(-1, -1, "line %d: epoch %d from offset %d does not follow epoch %d from offset %d", i+3, e.epoch, e.start, prev.epoch, prev.start)
		}
		prev = e
		f.entry("epoch", Field{"epoch", e.epoch}, Field{"start_offset", e.start})
	}
}

// readEpochs reads leader-epoch-checkpoint for the comparison with the batches; nothing where it is not in order.
func (d *Dump) readEpochs(path string) ([]epochStart, error) {
	lines, err := checkpointLines(string(d.readSmall(path)))
	if err != nil {
		return nil, err
	}
	var epochs []epochStart
	for _, line := range lines {
		e, err := parseEpoch(line)
		if n := len(epochs); err != nil || n > 0 && (e.epoch <= epochs[n-1].epoch || e.start <= epochs[n-1].start) {
			return nil, errors.New("not in order")
		}
		epochs = append(epochs, e)
	}
	return epochs, nil
}

func (f *file) topicID(p *partition) {
	text, ok := f.text()
	if !ok {
		return
	}
	id, err := parseTopicID([]byte(text))
	if err != nil && !errors.Is(err, errVersion) && p != nil {
		f.report(Problem{Severity: Damage, Position: -1, End: -1, First: -1, Last: -1, Text: err.Error(), fix: p.topicIDFix()})
		return
	}
	if err != nil {
		f.wrongText(err)
		return
	}
	name := base64.RawURLEncoding.EncodeToString(id[:])
	f.entry("topic id", Field{"topic_id", name})
	if p == nil || p.state != "" || p.d.topics == nil {
		return
	}
	if want, ok := p.d.topics[p.topic]; ok && want != id { // the server sets such a directory aside
		f.damage(-1, -1, "topic id %s, the metadata says that topic %s has %s", name, p.topic, base64.RawURLEncoding.EncodeToString(want[:]))
	}
}

// topicIDFix writes the file anew where the metadata knows the topic.
func (p *partition) topicIDFix() fix {
	id, ok := p.d.topics[p.topic]
	if !ok || p.state != "" {
		return fix{}
	}
	return fix{what: fixTopicID, id: id}
}

// properties dumps meta.properties.
func (f *file) properties() {
	text, ok := f.text()
	if !ok {
		return
	}
	values := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || !isKey(key) {
			f.damage(-1, -1, "line %d: %.60q is not key=value", i+1, line)
			continue
		}
		if _, twice := values[key]; twice {
			f.damage(-1, -1, "line %d: %s is there twice", i+1, key)
		}
		values[key] = value
		f.entry("property", Field{"key", key}, Field{"value", value})
	}
	switch v := values["version"]; {
	case v == "0" || v == "1":
	case isNumber(v):
		f.unsupported(-1, -1, "version %s: written by a newer version", v)
		return
	default:
		f.damage(-1, -1, "version is %.40q, not 1", v)
		return
	}
	if values["version"] == "0" {
		return
	}
	if n, err := strconv.ParseInt(values["node.id"], 10, 32); err != nil || n < 0 {
		f.damage(-1, -1, "node.id is %.40q, not a number", values["node.id"])
	}
	// An empty cluster.id is a node that has not learnt it yet: a first start that was cut short.
	if _, ok := values["cluster.id"]; !ok {
		f.damage(-1, -1, "cluster.id is missing")
	}
	if v, ok := values["directory.id"]; ok {
		if raw, err := base64.RawURLEncoding.DecodeString(v); err != nil || len(raw) != 16 {
			f.damage(-1, -1, "directory.id is %.60q, not 22 characters of base64url", v)
		}
	}
}

func isKey(s string) bool {
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return s != ""
}

// cleanStop dumps .kafka_cleanshutdown: JSON with a version and the broker's epoch. An empty file is one of old versions.
func (f *file) cleanStop() {
	text, ok := f.text()
	if !ok || text == "" {
		return
	}
	var v struct {
		Version     *int64 `json:"version"`
		BrokerEpoch *int64 `json:"brokerEpoch"`
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil || v.Version == nil || v.BrokerEpoch == nil {
		f.damage(-1, -1, "%.80q is not the version and broker epoch of a clean stop", text)
		return
	}
	if *v.Version > 0 && *v.Version < math.MaxInt32 {
		f.unsupported(-1, -1, "version %d: written by a newer version", *v.Version)
		return
	}
	f.entry("clean stop", Field{"version", *v.Version}, Field{"broker_epoch", *v.BrokerEpoch})
}

// votes dumps Kafka's quorum-state, a JSON object.
func (f *file) votes() {
	text, ok := f.text()
	if !ok {
		return
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		f.damage(-1, -1, "not a JSON object: %v", err)
		return
	}
	f.entry("quorum state", Field{"state", v})
}
