package quorum

import (
	"net"
	"sync"
	"testing"
)

// TestPortClosesWhileItAccepts: nobody is served any more when the port is closed, whoever connects meanwhile.
func TestPortClosesWhileItAccepts(t *testing.T) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := newPort(&Options{Listener: l}, nil)
		p.start()
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
					_ = c.Close()
				}
			})
		}
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		if n := len(p.slots); n != 0 {
			t.Fatalf("%d are served after the end", n)
		}
		callers.Wait()
	}
}
