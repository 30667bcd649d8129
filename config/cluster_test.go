package config

import (
	"strings"
	"testing"
)

const threeListeners = "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,REPLICATION://127.0.0.1:9094"

func loadCluster(set ...string) (*Broker, []Problem, error) {
	return Load(Input{Set: append([]string{"controller.listener.names=CONTROLLER", "inter.broker.listener.name=REPLICATION"}, set...)})
}

// A cluster has a listener for each purpose, and clients are told of theirs only.
func TestClusterListeners(t *testing.T) {
	voters := "controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9193"
	b, _, err := loadCluster(threeListeners, voters)
	if err != nil {
		t.Fatal(err)
	}
	if b.Alone() {
		t.Error("alone")
	}
	c, ca := b.Controller()
	i, ia := b.Internal()
	if c.Port != 9093 || ca.Port != 9093 || i.Port != 9094 || ia.Port != 9094 {
		t.Errorf("controller %v told as %v, internal %v told as %v", c, ca, i, ia)
	}
	for name, want := range map[string]bool{"PLAINTEXT": true, "plaintext": true, "CONTROLLER": false, "REPLICATION": false, "OTHER": false} {
		if b.ForClients(name) != want {
			t.Errorf("%s for clients: %v", name, !want)
		}
	}
	b, _, err = loadCluster("listeners=PLAINTEXT://:9092,CONTROLLER://:9093,REPLICATION://:9094", voters,
		"advertised.listeners=PLAINTEXT://a:1,REPLICATION://b:2,CONTROLLER://c:9093")
	if err != nil {
		t.Fatal(err)
	}
	if _, ca := b.Controller(); ca.Host != "c" {
		t.Errorf("controller told as %v", ca)
	}
	if _, ia := b.Internal(); ia.Host != "b" || ia.Port != 2 {
		t.Errorf("internal told as %v", ia)
	}
	b, _, err = loadCluster(threeListeners, "node.id=4", "keeplog.join=10.0.0.1:9093,10.0.0.2:9093")
	if err != nil || b.Alone() || len(b.Join()) != 2 {
		t.Errorf("joining: alone %v, %v, %v", b.Alone(), b.Join(), err)
	}
}

// Alone is a node that knows of no other: then the listeners of a cluster need not be there.
func TestAlone(t *testing.T) {
	for _, set := range [][]string{{threeListeners}, {threeListeners, "controller.quorum.voters=1@127.0.0.1:9093"}, {threeListeners}} {
		b, _, err := loadCluster(set...)
		if err != nil {
			t.Error(err)
		} else if !b.Alone() {
			t.Errorf("%v: not alone", set)
		}
	}
}

// What keeps a node out of its cluster is said before it starts, with what to do.
func TestClusterFaults(t *testing.T) {
	voters := "controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9193"
	for name, tc := range map[string]struct {
		set  []string
		want string
	}{
		"not listed":      {[]string{threeListeners, voters, "node.id=3"}, "does not list this node, node.id=3"},
		"no controller":   {[]string{threeListeners, voters, "controller.listener.names="}, "needs controller.listener.names"},
		"no internal":     {[]string{threeListeners, voters, "inter.broker.listener.name="}, "needs inter.broker.listener.name"},
		"not there":       {[]string{"listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", voters}, "inter.broker.listener.name names REPLICATION, which is not in listeners"},
		"one for both":    {[]string{threeListeners, voters, "inter.broker.listener.name=CONTROLLER"}, "both name CONTROLLER"},
		"that of clients": {[]string{"listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", voters, "inter.broker.listener.name=PLAINTEXT"}, "no listener is left for clients"},
		"told nowhere": {[]string{
			"listeners=PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093,REPLICATION://0.0.0.0:9094", "advertised.listeners=PLAINTEXT://a:1", voters,
		}, "the other nodes are not told where to connect"},
		"the same port":  {[]string{"listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,REPLICATION://127.0.0.1:9093", voters}, "two listeners have the address 127.0.0.1:9093"},
		"join elsewhere": {[]string{threeListeners, "keeplog.join=10.0.0.1"}, "is not HOST:PORT"},
		"the same port on all interfaces": {[]string{
			"listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://0.0.0.0:9093,REPLICATION://127.0.0.1:9093", voters,
		}, "port 9093"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := loadCluster(tc.set...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want %q", err, tc.want)
			}
		})
	}
	_, problems, err := loadCluster(threeListeners, "controller.quorum.voters=1@127.0.0.1:9999,2@127.0.0.1:9193")
	if err != nil || len(problems) == 0 || !strings.Contains(problems[0].What, "is told as port 9093") {
		t.Errorf("%v, %v", problems, err)
	}
}
