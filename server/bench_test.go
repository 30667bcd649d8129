package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/keeplog/keeplog/server/api"
)

// cpu is the processor time of this process so far: server and client.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSpans sends one span a request, by sendfile and by copying. s/GB is processor time of server and client together.
func BenchmarkSpans(b *testing.B) {
	for _, size := range []int{2 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20} {
		for _, mode := range []struct {
			name string
			o    Options
		}{{"sendfile", Options{SendfileMin: 1}}, {"copy", Options{Send: SendCopy}}} {
			b.Run(fmt.Sprintf("size=%dK/%s", size>>10, mode.name), func(b *testing.B) {
				f, _ := tempFile(b, 16<<20)
				o := mode.o
				pos := int64(0)
				o.Handler = &fake{serve: func(c *api.Call) {
					a, _ := spanAnswer(&fileSpan{f: f, pos: pos, n: size})
					pos = (pos + int64(size)) % (12 << 20)
					c.To.Complete(a)
				}}
				_, addr := start(b, o)
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				req, buf := frame(1, "x"), make([]byte, size+4+4)
				b.SetBytes(int64(size))
				before := cpu(b)
				for b.Loop() {
					conn.Write(req)
					if _, err := io.ReadFull(conn, buf); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((cpu(b)-before).Seconds()/(float64(size)*float64(b.N)/1e9), "cpu-s/GB")
			})
		}
	}
}

// BenchmarkFrames reads frames of a size and answers each with a few bytes: what the connection layer costs a produce request.
func BenchmarkFrames(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		for _, deep := range []int{1, 5} {
			b.Run(fmt.Sprintf("size=%d/pipelined=%d", size, deep), func(b *testing.B) {
				small := answer([]byte("done"))
				_, addr := start(b, Options{Handler: &fake{serve: func(c *api.Call) { c.To.Complete(small) }}})
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				req := bytes.Repeat(frame(0, string(make([]byte, size))), deep)
				buf := make([]byte, 8*deep)
				b.SetBytes(int64(size * deep))
				b.ReportAllocs()
				for b.Loop() {
					conn.Write(req)
					if _, err := io.ReadFull(conn, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
