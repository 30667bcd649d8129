package config

import (
	"fmt"
	"slices"
	"strings"
)

// cluster is what finish has found out about the other nodes.
type cluster struct {
	alone                bool
	controller, internal Listener
	// The addresses of the two as other nodes are told them.
	controllerAt, internalAt Listener
	join                     []string
}

// Alone says that this node is the whole cluster: controller.quorum.voters names no other and keeplog.join nobody.
func (b *Broker) Alone() bool { return b.cluster.alone }

// Controller is the listener of the metadata log's traffic, and what other nodes are told of it; a port of 0 stands for the one that the
// listener got from the system. Both are zero on a node alone.
func (b *Broker) Controller() (listen, advertised Listener) {
	return b.cluster.controller, b.cluster.controllerAt
}

// Internal is the listener of brokers, and what other nodes are told of it, as with Controller.
func (b *Broker) Internal() (listen, advertised Listener) {
	return b.cluster.internal, b.cluster.internalAt
}

// InternalName is the name of the listener of brokers, by which they find each other's; empty for a node alone.
func (b *Broker) InternalName() string { return b.cluster.internal.Name }

// Join are the members of a running cluster that this node joins. The slice is shared and read-only.
func (b *Broker) Join() []string { return b.cluster.join }

// ForClients says whether clients use the listener of that name.
func (b *Broker) ForClients(name string) bool {
	named := func(s string) bool { return strings.EqualFold(s, name) }
	if slices.ContainsFunc(b.List("controller.listener.names"), named) || !b.Alone() && named(b.String("inter.broker.listener.name")) {
		return false
	}
	return slices.ContainsFunc(b.advert, func(l Listener) bool { return named(l.Name) })
}

// finishCluster checks what a node needs to work with others.
func (b *Broker) finishCluster(l *loader) {
	self := b.NodeID()
	b.cluster.join = b.List("keeplog.join")
	other := func(v Voter) bool { return v.ID != self }
	b.cluster.alone = len(b.cluster.join) == 0 && !slices.ContainsFunc(b.voters, other)
	if b.cluster.alone {
		return
	}
	if len(b.voters) > 0 && len(b.cluster.join) == 0 && !slices.ContainsFunc(b.voters, func(v Voter) bool { return !other(v) }) {
		b.fault(l, "controller.quorum.voters", fmt.Sprintf("controller.quorum.voters does not list this node, node.id=%d", self),
			"list it there, set the node.id that the list has, or join a cluster that runs: keeplog.join="+b.voters[0].Address())
	}
	names := b.List("controller.listener.names")
	controller := ""
	if len(names) > 0 {
		controller = names[0]
	}
	b.cluster.controller, b.cluster.controllerAt = b.between(l, "controller.listener.names", controller, "CONTROLLER")
	b.cluster.internal, b.cluster.internalAt = b.between(l, "inter.broker.listener.name", b.String("inter.broker.listener.name"), "REPLICATION")
	b.checkApart(l)
	for _, v := range b.voters {
		if port := b.cluster.controllerAt.Port; !other(v) && port != 0 && v.Port != port {
			l.warn(Problem{Where: b.Get("controller.quorum.voters").Origin, Key: "controller.quorum.voters", What: fmt.Sprintf("controller.quorum.voters says that this node is at %s, but listener %s is told as port %d", v.Address(), b.cluster.controller.Name, port), Why: "the other nodes connect to the port in the list"})
		}
	}
}

// between finds a listener that nodes use among themselves.
func (b *Broker) between(l *loader, key, name, usual string) (listen, advertised Listener) {
	if name == "" {
		b.fault(l, key, fmt.Sprintf("a cluster of several nodes needs %s", key), fmt.Sprintf("%s=%s, and %s://HOST:PORT in listeners", key, usual, usual))
		return listen, advertised
	}
	at := slices.IndexFunc(b.listeners, func(li Listener) bool { return strings.EqualFold(li.Name, name) })
	if at < 0 {
		b.fault(l, key, fmt.Sprintf("%s names %s, which is not in listeners", key, strings.ToUpper(name)), fmt.Sprintf("listeners=…,%s://HOST:PORT", strings.ToUpper(name)))
		return listen, advertised
	}
	listen = b.listeners[at]
	if at := slices.IndexFunc(b.advert, func(li Listener) bool { return li.Name == listen.Name }); at >= 0 {
		return listen, b.advert[at]
	}
	if listen.Wildcard() {
		b.fault(l, "listeners", fmt.Sprintf("listener %s binds to all interfaces, and the other nodes are not told where to connect", listen), fmt.Sprintf("advertised.listeners=…,%s://HOST:%d, HOST being a name that the other nodes can reach", listen.Name, listen.Port))
	}
	return listen, listen
}

// checkApart wants a listener for each purpose: what brokers may ask each other must not be open to clients.
func (b *Broker) checkApart(l *loader) {
	c, i := b.cluster.controller.Name, b.cluster.internal.Name
	if c != "" && c == i {
		b.fault(l, "inter.broker.listener.name", fmt.Sprintf("inter.broker.listener.name and controller.listener.names both name %s", i), "a listener of its own for each")
	}
	clients := slices.ContainsFunc(b.listeners, func(li Listener) bool { return b.ForClients(li.Name) })
	if i != "" && !clients {
		b.fault(l, "inter.broker.listener.name", fmt.Sprintf("no listener is left for clients beside %s", strings.Join(slices.DeleteFunc([]string{i, c}, func(s string) bool { return s == "" }), " and ")),
			"what brokers ask each other is not for clients: add a listener, listeners=PLAINTEXT://HOST:PORT,…")
	}
}

func checkAddresses(v string) error {
	for _, it := range splitList(v) {
		host, port, err := splitHostPort(it)
		if err != nil || host == "" || port == 0 {
			return fmt.Errorf("%q is not HOST:PORT", it)
		}
	}
	return nil
}
