package controller

import (
	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
)

// Loggers are the loggers of this process. Their levels are its own and are forgotten at its end; they are not metadata.
type Loggers interface {
	// Has says whether there is a logger of that name.
	Has(name string) bool
	// SetLevel sets a level: TRACE, DEBUG, INFO, WARN, ERROR or FATAL; empty goes back to the configured one.
	SetLevel(name, level string)
}

// rootLogger is the name of the logger above all others.
const rootLogger = "root"

// AlterLoggers carries out the operations on a BROKER_LOGGER resource that reached this broker.
func AlterLoggers(r AlterResource, self metadata.BrokerID, loggers Loggers, validateOnly bool) error {
	if err := checkOps(r, 1); err != nil {
		return err
	}
	if err := checkNodeName(r.Resource.Name, self, "Unexpected node id. Expected %d, but received %d"); err != nil {
		return err
	}
	for _, op := range r.Ops {
		if err := checkLogger(op, loggers); err != nil {
			return err
		}
	}
	if validateOnly {
		return nil
	}
	for _, op := range r.Ops {
		level := ""
		if op.Value != nil && op.Op == config.OpSet {
			level = *op.Value
		}
		loggers.SetLevel(op.Key, level)
	}
	return nil
}

func checkLogger(op ConfigOp, loggers Loggers) error {
	switch op.Op {
	case config.OpAppend:
		return answer(ErrInvalidRequest, "APPEND operation is not allowed for the BROKER_LOGGER resource")
	case config.OpSubtract:
		return answer(ErrInvalidRequest, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource")
	}
	if op.Key != rootLogger && !loggers.Has(op.Key) {
		return answer(ErrInvalidConfig, "Logger %s does not exist!", op.Key)
	}
	if op.Op == config.OpDelete {
		if op.Key == rootLogger {
			return answer(ErrInvalidRequest, "Removing the log level of the root logger is not allowed")
		}
		return nil
	}
	switch *op.Value {
	case "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL":
		return nil
	}
	return answer(ErrInvalidConfig, "Cannot set the log level of %s to %s as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN", op.Key, *op.Value)
}
