package torture

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// whose finds the node that made a connection to a gate; Clients when it was none.
func (n *Network) whose(conn net.Conn) int32 {
	from, ok := conn.RemoteAddr().(*net.TCPAddr)
	to, also := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !also {
		return Clients
	}
	// A process that was started a moment ago may connect before its id is known here.
	for deadline := time.Now().Add(100 * time.Millisecond); ; {
		inode, err := socketInode(from, to)
		if err != nil || inode == 0 {
			return Clients // it has gone already
		}
		name := "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"
		for _, node := range n.known() {
			if pid := n.process(node); pid > 0 && hasSocket(pid, name) {
				return node
			}
		}
		if time.Now().After(deadline) {
			return Clients
		}
		<-time.After(10 * time.Millisecond)
	}
}

// known are the nodes that have gates.
func (n *Network) known() []int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []int32
	for _, g := range n.gates {
		if !slices.Contains(ids, g.node) {
			ids = append(ids, g.node)
		}
	}
	return ids
}

// socketInode asks the kernel for the inode of the socket of this machine that is bound to from and connected to to, IPv4 both:
//
//	┌────────┬──────────┬─────────┬────────┬───────────────────────┬───────┬────────┐
//	│ header │ family,  │ states  │ ports  │ from, to, 16 bytes of │ iface │ cookie │   the question, 16 + 56 bytes
//	│   16   │ proto, 0 │    4    │ 2 + 2  │ which 4 count, each   │   4   │   8    │
//	└────────┴──────────┴─────────┴────────┴───────────────────────┴───────┴────────┘
//
// The answer has the inode 68 bytes behind its header.
func socketInode(from, to *net.TCPAddr) (uint32, error) {
	const header, question, inodeAt, byFamily = 16, 56, 68, 20
	if from.IP.To4() == nil || to.IP.To4() == nil {
		return 0, errors.New("not IPv4")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var b [header + question]byte
	binary.NativeEndian.PutUint32(b[0:], header+question)
	binary.NativeEndian.PutUint16(b[4:], byFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	b[16], b[17] = unix.AF_INET, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[20:], 1<<32-1)
	binary.BigEndian.PutUint16(b[24:], uint16(from.Port))
	binary.BigEndian.PutUint16(b[26:], uint16(to.Port))
	copy(b[28:], from.IP.To4())
	copy(b[44:], to.IP.To4())
	binary.NativeEndian.PutUint64(b[64:], 1<<64-1) // any cookie
	if err := unix.Sendto(fd, b[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	got, _, err := unix.Recvfrom(fd, answer, 0)
	switch {
	case err != nil:
		return 0, err
	case got < header+inodeAt+4 || binary.NativeEndian.Uint16(answer[4:]) != byFamily:
		return 0, errors.New("no such socket")
	}
	return binary.NativeEndian.Uint32(answer[header+inodeAt:]), nil
}

// hasSocket says whether a process has the socket open.
func hasSocket(pid int, name string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		return err == nil && to == name
	})
}
