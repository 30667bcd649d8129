package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/keeplog/keeplog/config"
)

// clientProperties are what a Kafka client properties file and -X can say and this client heeds.
type clientProperties struct {
	brokers  []string
	clientID string
	tls      *tls.Config
	values   map[string]string // every property as given
}

// clientKeys are the properties that -X takes.
var clientKeys = map[string]bool{
	"bootstrap.servers": true, "client.id": true, "security.protocol": true, "acks": true, "compression.type": true,
	"linger.ms": true, "isolation.level": true, "ssl.truststore.location": true, "ssl.truststore.type": true,
	"ssl.keystore.location": true, "ssl.keystore.type": true, "ssl.endpoint.identification.algorithm": true,
}

// clientProperties reads -F and -X. A file may hold properties of other clients, which are passed over; -X may not.
func (a *app) clientProperties() (clientProperties, error) {
	p := clientProperties{clientID: "keeplog", values: map[string]string{}}
	if file := a.flags.commandConfig; file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return p, &cliError{msg: fmt.Sprintf("%s: %s", file, lastPart(err)), exit: exitUsage}
		}
		parsed, err := config.ParseProperties(raw)
		if err != nil {
			return p, &cliError{msg: fmt.Sprintf("%s: %v", file, err), exit: exitUsage}
		}
		for _, kv := range parsed {
			p.values[kv.Key] = kv.Value
		}
	}
	for _, x := range a.flags.properties {
		k, v, ok := strings.Cut(x, "=")
		if !ok {
			return p, usagef("-X %s: not KEY=VALUE", x)
		}
		if !clientKeys[k] {
			e := usagef("-X %s: unknown property", k)
			names := make([]string, 0, len(clientKeys))
			for name := range clientKeys {
				names = append(names, name)
			}
			e.try = nearest(k, names)
			return p, e
		}
		p.values[k] = v
	}
	brokers := a.flags.brokers
	if v := p.values["bootstrap.servers"]; v != "" && brokers == "127.0.0.1:9092" {
		brokers = v
	}
	for _, b := range strings.Split(brokers, ",") {
		if scheme, rest, ok := strings.Cut(b, "://"); ok {
			return p, &cliError{msg: fmt.Sprintf("-b %s: a broker is HOST:PORT, without %s://", b, strings.TrimSpace(scheme)), try: "-b " + strings.TrimRight(rest, "/"), exit: exitUsage}
		}
		if b = strings.TrimSpace(b); b != "" {
			p.brokers = append(p.brokers, b)
		}
	}
	if len(p.brokers) == 0 {
		return p, &cliError{msg: "no broker address", try: "-b HOST:PORT", exit: exitUsage}
	}
	if v := p.values["client.id"]; v != "" {
		p.clientID = v
	}
	return p, p.security()
}

// security reads security.protocol and the PEM files of TLS.
func (p *clientProperties) security() error {
	switch protocol := p.values["security.protocol"]; strings.ToUpper(protocol) {
	case "", "PLAINTEXT":
		return nil
	case "SSL":
	default:
		return usagef("security.protocol %s is not supported by this client: PLAINTEXT or SSL", protocol)
	}
	p.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if trust := p.values["ssl.truststore.location"]; trust != "" {
		if t := p.values["ssl.truststore.type"]; !strings.EqualFold(t, "PEM") {
			return usagef("ssl.truststore.type %q is not supported by this client: PEM", t)
		}
		pem, err := os.ReadFile(trust)
		if err != nil {
			return usagef("%s: %s", trust, lastPart(err))
		}
		p.tls.RootCAs = x509.NewCertPool()
		if !p.tls.RootCAs.AppendCertsFromPEM(pem) {
			return usagef("%s: no certificate in it", trust)
		}
	}
	if own := p.values["ssl.keystore.location"]; own != "" {
		if t := p.values["ssl.keystore.type"]; !strings.EqualFold(t, "PEM") {
			return usagef("ssl.keystore.type %q is not supported by this client: PEM", t)
		}
		pair, err := tls.LoadX509KeyPair(own, own)
		if err != nil {
			return usagef("%s: %s", own, lastPart(err))
		}
		p.tls.Certificates = []tls.Certificate{pair}
	}
	if v, ok := p.values["ssl.endpoint.identification.algorithm"]; ok && v == "" {
		p.tls.InsecureSkipVerify = true // asked for in so many words, as in Kafka's own clients
	}
	return nil
}
