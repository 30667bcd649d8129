// Command gen records conversations with a Kafka broker: one file for each API and version that is served, and one with
// what the broker says to produced batches that are wrong in some way. The broker must be fresh, with one node.
//
//	go run ./testdata/wire/gen HOST:PORT CONTROLLER_HOST:PORT
//
// Files are written to testdata/wire; those that are there stay. They are made once from Kafka and not changed by hand.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/protocol"
)

const dir = "testdata/wire"

func main() {
	if len(os.Args) != 3 {
		slog.Error("usage: gen HOST:PORT CONTROLLER_HOST:PORT")
		os.Exit(2)
	}
	if err := errors.Join(run(os.Args[1]), internal(os.Args[2])); err != nil {
		slog.Error("gen failed", "err", err)
		os.Exit(1)
	}
}

// internal records what only brokers ask, at the controller's listener.
func internal(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &session{conn: conn, table: protocol.NewTable(protocol.Internal())}
	return s.recordAll()
}

func (s *session) recordAll() error {
	for _, api := range s.table.APIs() {
		for v := api.Min; v <= api.Max; v++ {
			if err := s.record(api, v); err != nil {
				return fmt.Errorf("%s %d: %w", api.Name, v, err)
			}
		}
	}
	return nil
}

func run(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &session{conn: conn, table: protocol.NewTable(protocol.Served())}
	if err := errors.Join(s.prepare(), s.joinGroup()); err != nil {
		return err
	}
	if err := s.recordAll(); err != nil {
		return err
	}
	if err := s.unknownVersion(); err != nil {
		return err
	}
	if err := s.replicaCases(); err != nil {
		return err
	}
	return s.produceCases(address)
}

// session is one connection and what was learned over it.
type session struct {
	conn  net.Conn
	table *protocol.Table
	next  int32
	topic [16]byte // id of the topic golden
	// member is the one of the group members, and generation the group's.
	member     string
	generation int32
}

// exchange sends a request and returns both frames, with their sizes.
func (s *session) exchange(req kmsg.Request) (request, response []byte, err error) {
	s.next++
	request = kmsg.NewRequestFormatter(kmsg.FormatterClientID("golden")).AppendRequest(nil, req, s.next)
	if _, err := s.conn.Write(request); err != nil {
		return nil, nil, err
	}
	response = make([]byte, 4)
	if _, err := io.ReadFull(s.conn, response); err != nil {
		return nil, nil, err
	}
	response = append(response, make([]byte, binary.BigEndian.Uint32(response))...)
	_, err = io.ReadFull(s.conn, response[4:])
	return request, response, err
}

// ask sends a request and decodes the answer.
func (s *session) ask(req kmsg.Request) (kmsg.Response, error) {
	_, frame, err := s.exchange(req)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	body := frame[8:]
	if req.Key() != protocol.KeyApiVersions && req.IsFlexible() {
		n, err := protocol.SkipTags(body)
		if err != nil {
			return nil, err
		}
		body = body[n:]
	}
	return resp, resp.ReadFrom(body)
}

func (s *session) prepare() error {
	names := []struct{ name, key, value string }{
		{"golden", "retention.ms", "-1"},
		{"compacted", "cleanup.policy", "compact"},
		{"appendtime", "message.timestamp.type", "LogAppendTime"},
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	for _, n := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n.name, 2, 1
		t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: n.key, Value: &n.value}}
		create.Topics = append(create.Topics, t)
	}
	resp, err := s.ask(create)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if t.ErrorCode != 0 {
			return fmt.Errorf("topic %s: error %d, is the broker fresh?", t.Topic, t.ErrorCode)
		}
		if t.Topic == "golden" {
			s.topic = t.TopicID
		}
	}
	return nil
}

func (s *session) record(api protocol.API, version int16) error {
	req := s.sample(api.Key, version)
	if req == nil {
		return fmt.Errorf("no sample")
	}
	req.SetVersion(version)
	request, response, err := s.exchange(req)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%02d-%s-v%02d.hex", api.Key, strings.ToLower(api.Name), version)
	return write(name, fmt.Sprintf("%s version %d, as Kafka 4.4 answers it", api.Name, version), request, response)
}

// unknownVersion asks for a version of ApiVersions that does not exist.
func (s *session) unknownVersion() error {
	s.next++
	request := []byte{0, 0, 0, 11, 0, 18, 0, 99}
	request = binary.BigEndian.AppendUint32(request, uint32(s.next))
	request = append(request, 0xff, 0xff, 0)
	if _, err := s.conn.Write(request); err != nil {
		return err
	}
	response := make([]byte, 4)
	if _, err := io.ReadFull(s.conn, response); err != nil {
		return err
	}
	response = append(response, make([]byte, binary.BigEndian.Uint32(response))...)
	if _, err := io.ReadFull(s.conn, response[4:]); err != nil {
		return err
	}
	return write("18-apiversions-unknown.hex", "ApiVersions in a version that does not exist: answered in version 0", request, response)
}

func write(name, comment string, request, response []byte) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", comment)
	for _, part := range []struct {
		name  string
		frame []byte
	}{{"request", request}, {"response", response}} {
		fmt.Fprintf(&b, "%s\n", part.name)
		for f := part.frame; len(f) > 0; {
			n := min(len(f), 32)
			fmt.Fprintf(&b, "  %s\n", hex.EncodeToString(f[:n]))
			f = f[n:]
		}
	}
	return keep(name, b.String())
}

// keep writes a file that is not there yet.
func keep(name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
