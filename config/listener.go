package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Listener is one address that a broker listens on or advertises.
type Listener struct {
	// Name is the listener's name, in upper case.
	Name string
	// Host is a name or an address without brackets; empty is all interfaces.
	Host string
	// Port is 0 to 65535; 0 asks the system for one.
	Port int
	// Protocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
	Protocol string
}

// Address gives HOST:PORT, IPv6 addresses in brackets.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// String gives NAME://HOST:PORT.
func (l Listener) String() string { return l.Name + "://" + l.Address() }

// Wildcard is true when the listener binds to every interface, so that its address tells a client nothing.
func (l Listener) Wildcard() bool {
	if l.Host == "" {
		return true
	}
	ip := net.ParseIP(l.Host)
	return ip != nil && ip.IsUnspecified()
}

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// Address gives HOST:PORT.
func (v Voter) Address() string { return net.JoinHostPort(v.Host, strconv.Itoa(v.Port)) }

// parseListeners reads NAME://HOST:PORT items; the protocol is left empty.
func parseListeners(v string) ([]Listener, error) {
	var ls []Listener
	for _, it := range splitList(v) {
		name, addr, ok := strings.Cut(it, "://")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME://HOST:PORT", it)
		}
		host, port, err := splitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("%q is not NAME://HOST:PORT: %w", it, err)
		}
		l := Listener{Name: strings.ToUpper(name), Host: host, Port: port}
		for _, o := range ls {
			if o.Name == l.Name {
				return nil, fmt.Errorf("two listeners are called %s", l.Name)
			}
			if o.Port == l.Port && l.Port != 0 && o.Host == l.Host {
				return nil, fmt.Errorf("two listeners have the address %s", l.Address())
			}
			if o.Port == l.Port && l.Port != 0 && (o.Wildcard() || l.Wildcard()) {
				return nil, fmt.Errorf("listeners %s and %s both want port %d", o.Name, l.Name, l.Port)
			}
		}
		ls = append(ls, l)
	}
	return ls, nil
}

func splitHostPort(addr string) (string, int, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, errors.New("the port is missing, or an IPv6 address stands without brackets")
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not a port", p)
	}
	if strings.ContainsAny(host, " \t/") {
		return "", 0, fmt.Errorf("%q is not a host", host)
	}
	return host, int(port), nil
}

func checkListeners(v string) error {
	_, err := parseListeners(v)
	return err
}

func checkHostPort(v string) error {
	if v == "" {
		return nil
	}
	_, _, err := splitHostPort(v)
	return err
}

func parseProtocolMap(v string) (map[string]string, error) {
	m := map[string]string{}
	for _, it := range splitList(v) {
		name, proto, ok := strings.Cut(it, ":")
		name, proto = strings.ToUpper(strings.TrimSpace(name)), strings.ToUpper(strings.TrimSpace(proto))
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME:PROTOCOL", it)
		}
		if !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, proto) {
			return nil, fmt.Errorf("%q is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", proto)
		}
		if m[name] != "" {
			return nil, fmt.Errorf("%s stands in the map twice", name)
		}
		m[name] = proto
	}
	return m, nil
}

func checkProtocolMap(v string) error {
	_, err := parseProtocolMap(v)
	return err
}

func parseVoters(v string) ([]Voter, error) {
	var vs []Voter
	for _, it := range splitList(v) {
		id, addr, ok := strings.Cut(it, "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not ID@HOST:PORT", it)
		}
		host, port, err := splitHostPort(addr)
		if err != nil || host == "" {
			return nil, fmt.Errorf("%q is not ID@HOST:PORT", it)
		}
		for _, o := range vs {
			if o.ID == int32(n) {
				return nil, fmt.Errorf("voter %d stands in the list twice", n)
			}
		}
		vs = append(vs, Voter{ID: int32(n), Host: host, Port: port})
	}
	return vs, nil
}

func checkVoters(v string) error {
	_, err := parseVoters(v)
	return err
}

// parseOverrides reads HOST:COUNT items of max.connections.per.ip.overrides.
func parseOverrides(v string) (map[string]int, error) {
	m := map[string]int{}
	for _, it := range splitList(v) {
		i := strings.LastIndexByte(it, ':')
		if i <= 0 {
			return nil, fmt.Errorf("%q is not HOST:COUNT", it)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(it[i+1:]), 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not HOST:COUNT", it)
		}
		m[strings.Trim(strings.TrimSpace(it[:i]), "[]")] = int(n)
	}
	return m, nil
}

func checkOverrides(v string) error {
	_, err := parseOverrides(v)
	return err
}
