package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// readGolden reads a file of testdata/wire: the frames of a request and its response, with their sizes.
func readGolden(t *testing.T, path string) (request, response []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var into *[]byte
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line == "request":
			into = &request
		case line == "response":
			into = &response
		default:
			b, err := hex.DecodeString(line)
			if err != nil {
				t.Fatal(err)
			}
			*into = append(*into, b...)
		}
	}
	for _, f := range [][]byte{request, response} {
		if len(f) < 8 || int(binary.BigEndian.Uint32(f)) != len(f)-4 {
			t.Fatalf("%s: a frame of %d bytes", path, len(f))
		}
	}
	return request, response
}

// What Kafka sent and was sent goes through decoding and encoding unchanged, headers included.
func TestGoldenFrames(t *testing.T) {
	limits := Limits{Produce: 1 << 20, Other: 1 << 20}
	seen := map[[2]int16]bool{}
	files, err := filepath.Glob("../testdata/wire/*-v*.hex")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			request, response := readGolden(t, path)
			frame, err := ReadFrame(bytes.NewReader(request), limits, func(n int) ([]byte, error) { return make([]byte, n), nil })
			if err != nil {
				t.Fatal(err)
			}
			h, err := table.ParseHeader(frame)
			if err != nil || string(h.ClientID) != "golden" {
				t.Fatalf("%v, client id %q", err, h.ClientID)
			}
			req, err := table.Decode(h.Key, h.Version, h.Body)
			if err != nil {
				t.Fatal(err)
			}
			again := kmsg.NewRequestFormatter(kmsg.FormatterClientID("golden")).AppendRequest(nil, req, h.CorrelationID)
			if !bytes.Equal(again, request) && !(h.Key == KeyMetadata && h.Version < 4) {
				t.Fatalf("request:\n%x\n%x", request, again)
			}
			api, _ := table.Lookup(h.Key)
			head := len(table.AppendResponseHeader(nil, h))
			resp := req.ResponseKind()
			resp.SetVersion(h.Version)
			if err := resp.ReadFrom(response[head:]); err != nil {
				t.Fatal(err)
			}
			made, err := table.AppendResponse(nil, h, resp)
			if err != nil || !bytes.Equal(made, response) {
				t.Fatalf("response: %v\n%x\n%x", err, response, made)
			}
			seen[[2]int16{api.Key, h.Version}] = true
		})
	}
	for _, a := range table.APIs() {
		for v := a.Min; v <= a.Max; v++ {
			if !seen[[2]int16{a.Key, v}] {
				t.Errorf("no file for %s version %d", a.Name, v)
			}
		}
	}
}

// An unknown version of ApiVersions has a header to answer with: version 0, and one entry, as Kafka does it.
func TestGoldenUnknownVersion(t *testing.T) {
	request, response := readGolden(t, "../testdata/wire/18-apiversions-unknown.hex")
	h, err := table.ParseHeader(request[4:])
	if err == nil || h.Version != 99 {
		t.Fatal(h, err)
	}
	h.Version = 0
	api, _ := table.Lookup(KeyApiVersions)
	made, err := table.AppendResponse(nil, h, &kmsg.ApiVersionsResponse{
		ErrorCode: 35, ApiKeys: []kmsg.ApiVersionsResponseApiKey{{ApiKey: api.Key, MinVersion: api.Min, MaxVersion: api.Max}},
	})
	if err != nil || !bytes.Equal(made, response) {
		t.Fatalf("%v\n%x\n%x", err, made, response)
	}
}
