package main

import (
	"bytes"
	"strings"
	"testing"
)

// What `cluster add` tells a new node to have names the listeners as the cluster does: with another internal one it would be refused.
func TestJoinNamesTheListenersOfTheCluster(t *testing.T) {
	v := &clusterView{brokers: []viewBroker{{id: 1}, {id: 2}, {id: 3}}, quorum: &viewQuorum{voters: []quorumMember{{id: 1, host: "one", port: 9093}}}}
	for _, c := range []struct {
		between map[string]string
		want    string
	}{
		{nil, `  node.id=4
  listeners=PLAINTEXT://HOST:9092,CONTROLLER://HOST:9093,REPLICATION://HOST:9094
  controller.listener.names=CONTROLLER
  inter.broker.listener.name=REPLICATION
  log.dirs=DIR
then: keeplog serve --config node-4.properties --join one:9093
`},
		{map[string]string{controllerName: "RAFT,OTHER", internalName: "INTERNAL"}, `  node.id=4
  listeners=PLAINTEXT://HOST:9092,RAFT://HOST:9093,INTERNAL://HOST:9094
  controller.listener.names=RAFT
  inter.broker.listener.name=INTERNAL
  log.dirs=DIR
  listener.security.protocol.map=PLAINTEXT:PLAINTEXT,RAFT:PLAINTEXT,INTERNAL:PLAINTEXT
then: keeplog serve --config node-4.properties --join one:9093
`},
	} {
		var out bytes.Buffer
		a := &app{streams: streams{out: &out, err: &out, getenv: func(string) string { return "" }}, flags: globalFlags{output: "text"}}
		if err := a.showJoin(v, c.between); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: got\n%s\nwant\n%s", c.between, &out, c.want)
		}
	}
}
