package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// session is a connection to the brokers. Whoever opened it closes it.
type session struct {
	app    *app
	client *kgo.Client
	home   *kgo.Broker // the one that answered first
	admin  *kadm.Client
	reach  *reach
	props  clientProperties
	// explains is the session whose failure this one explains, nil for others.
	explains *session
}

// connect reads the client properties, builds a client, and sees that a broker answers. A command that only asks gives
// no opts; its requests are tried a few times, within --timeout.
func (a *app) connect(ctx context.Context, opts ...kgo.Opt) (*session, error) {
	if a.flags.timeout <= 0 {
		return nil, usagef("--timeout %s: it must be above zero", a.flags.timeout)
	}
	props, err := a.clientProperties()
	if err != nil {
		return nil, err
	}
	limit := a.flags.timeout
	s := &session{app: a, props: props, reach: newReach(props.brokers, limit)}
	ping, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	base := []kgo.Opt{
		kgo.SeedBrokers(s.reach.firstToAnswer(ping, props.tls)...),
		kgo.ClientID(props.clientID),
		kgo.SoftwareNameAndVersion("keeplog", strings.TrimLeft(versionText(), "-.")),
		kgo.Dialer(s.reach.dialer(props.tls)),
		kgo.RequestTimeoutOverhead(oneTry(limit)),
		kgo.RetryTimeout(limit),
		kgo.RequestRetries(10),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(time.Duration(n)*50*time.Millisecond, time.Second) }),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.DisableClientMetrics(),
		kgo.WithHooks(s.reach),
	}
	s.client, err = kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, &cliError{msg: err.Error(), exit: exitUsage}
	}
	s.admin = kadm.NewClient(s.client)
	s.admin.SetTimeoutMillis(int32(min(limit, time.Hour).Milliseconds()))
	for {
		err := s.client.Ping(ping)
		if err == nil {
			break
		}
		if !errors.Is(err, errSilent) || ping.Err() != nil {
			s.client.Close()
			return nil, s.explain(err, "")
		}
	}
	s.home = s.client.SeedBrokers()[0]
	return s, nil
}

// oneTry is how long a broker that has answered before may take for the next answer, beside what the request itself allows.
func oneTry(limit time.Duration) time.Duration { return min(max(limit/3, time.Second), 10*time.Second) }

func (s *session) close() { s.client.Close() }

// ask runs work with a session and a context that ends after --timeout.
func (a *app) ask(ctx context.Context, work func(context.Context, *session) error) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	if err := work(ctx, s); err != nil {
		return s.explain(err, "")
	}
	return nil
}

// explain turns err, met while doing something about what ("topic orders"), into a cliError.
func (s *session) explain(err error, what string) error {
	var ce *cliError
	if err == nil || errors.As(err, &ce) {
		return err
	}
	prefix := ""
	if what != "" {
		prefix = what + ": "
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return kafkaError(what, ke, "")
	}
	if e := s.reach.explain(err, len(s.client.DiscoveredBrokers())); e != nil {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return s.timedOut(what)
	}
	return &cliError{msg: prefix + lastPart(err), exit: exitFailed}
}

func (s *session) timedOut(what string) *cliError {
	if what == "" {
		what = strings.Join(s.props.brokers, ",")
	}
	return &cliError{
		msg: fmt.Sprintf("%s: no answer within %s", what, s.app.flags.timeout), code: "TIMED_OUT",
		try: "a longer --timeout", exit: exitUnreachable,
	}
}

// kafkaError tells what a broker answered. message is the broker's own explanation, if it gave one.
func kafkaError(what string, ke *kerr.Error, message string) *cliError {
	generic := message == ""
	if generic {
		message = strings.TrimSuffix(ke.Description, ".")
	}
	e := &cliError{msg: fmt.Sprintf("%s (%s)", ke.Message, message), code: ke.Message, exit: exitFailed}
	if what != "" {
		e.msg = what + ": " + e.msg
	}
	switch ke {
	case kerr.TopicAlreadyExists:
		e.try = "keeplog topic create " + strings.TrimPrefix(what, "topic ") + " --if-not-exists"
	case kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend:
		e.why = "fewer replicas are in sync than min.insync.replicas asks for"
		e.try = "keeplog topic describe " + strings.TrimPrefix(what, "topic ")
	case kerr.NotController:
		e.exit = exitUnreachable
		e.why = "no leader of the metadata answers: a majority of the nodes that vote must be up"
		e.try = "keeplog cluster health"
	case kerr.KafkaStorageError:
		e.why = "the broker cannot write: its disk is full or broken"
		e.try = "make room on its disk (keeplog topic delete, keeplog topic trim): it goes on by itself"
	case kerr.InvalidTopicException:
		if generic {
			e.why = "a topic's name is 1 to 249 of the characters a-z A-Z 0-9 . _ -"
		}
	case kerr.RequestTimedOut:
		e.exit, e.why = exitUnreachable, "the broker waited for other nodes, and they did not answer in time"
		e.try = "keeplog cluster health, or a longer --timeout"
	}
	return e
}

// answered turns the error that a broker gave for one thing into a cliError; nil stays nil.
func (s *session) answered(what string, err error, message string) error {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return kafkaError(what, ke, message)
	}
	return s.explain(err, what)
}

// topics returns the details of the named topics. One that does not exist is an error that names the nearest.
func (s *session) topics(ctx context.Context, names ...string) (kadm.TopicDetails, error) {
	m, err := s.admin.Metadata(ctx, names...)
	if err != nil {
		return nil, s.explain(err, "")
	}
	for _, name := range names {
		detail, ok := m.Topics[name]
		switch {
		case !ok || errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
			return nil, s.unknownTopic(ctx, name)
		case detail.Err != nil:
			return nil, s.answered("topic "+name, detail.Err, "")
		}
	}
	return m.Topics, nil
}

// unknownTopic says that there is no such topic, and which name may have been meant.
func (s *session) unknownTopic(ctx context.Context, name string) *cliError {
	e := kafkaError("topic "+name, kerr.UnknownTopicOrPartition, "no such topic")
	e.try = "keeplog topic list"
	if len(s.app.args) > 0 && (s.app.args[0] == "produce" || s.app.args[0] == "consume") {
		e.try = "keeplog topic create " + name
	}
	if all, err := s.admin.ListTopics(ctx); err == nil {
		if near := nearest(name, all.Names()); near != "" {
			if e.why = "there is a topic " + near; slices.Contains(s.app.args, name) {
				e.try = s.app.instead(name, near)
			}
		}
	}
	return e
}

// nearest returns the name that is fewest edits away from name, if that is few enough to be a slip.
func nearest(name string, names []string) string {
	best, bestDistance := "", max(2, len(name)/4)+1
	for _, n := range names {
		if len(n) > 249 || len(name) > 249 {
			continue
		}
		d := editDistance(strings.ToLower(name), strings.ToLower(n))
		if d < bestDistance && d < len(name) {
			best, bestDistance = n, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions and replacements between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
