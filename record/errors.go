package record

import (
	"errors"
	"fmt"
)

// What can be wrong with bytes that should be a batch. Each is the root of a wrapped chain: test with errors.Is.
var (
	// ErrTorn means that the bytes end before the batch does.
	ErrTorn = errors.New("batch is cut short")
	// ErrCorrupt means that the bytes are not what was written: a length out of bounds or a CRC that does not match.
	ErrCorrupt = errors.New("corrupt batch")
	// ErrNewerVersion means a magic above 2: the batch was written by a later version.
	ErrNewerVersion = errors.New("batch of a newer version")
	// ErrOldVersion means magic 0 or 1: message sets of before Kafka 0.11.
	ErrOldVersion = errors.New("message set of an old version")
	// ErrInvalidRecord means that the bytes are intact but break the rules of a batch or a record.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrInvalidTimestamp means that a record's timestamp is outside of the allowed range.
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrUnsupportedCodec means that the codec may not be used with this request version.
	ErrUnsupportedCodec = errors.New("unsupported compression codec")
	// ErrTooLarge means that the batch, or what it unpacks to, is above a limit.
	ErrTooLarge = errors.New("batch too large")
	// ErrNullKey is the cause in a [RecordError] where a compacted topic got a record without key.
	ErrNullKey = errors.New("record without key")
)

// PlaceError says where in a file or buffer something was found. Err wraps one of the sentinels, or is an I/O error.
type PlaceError struct {
	File     string   // name of the file, empty where unknown
	Position Position // first byte of the batch concerned
	Err      error
}

func (e *PlaceError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("at byte %d: %v", e.Position, e.Err)
	}
	return fmt.Sprintf("%s at byte %d: %v", e.File, e.Position, e.Err)
}

func (e *PlaceError) Unwrap() error { return e.Err }

// RecordError names one record that was refused.
type RecordError struct {
	Index     int32 // place in the batch, from 0
	Timestamp int64 // of the record, ms
	Cause     error // ErrNullKey or ErrInvalidTimestamp
}

// RecordErrors is the error of a batch in which single records were refused; the first 65,536 are named, fewer of a small
// compressed batch. It is ErrInvalidTimestamp if any of the named has a bad timestamp, else ErrInvalidRecord.
type RecordErrors struct {
	Records []RecordError
}

func (e *RecordErrors) Error() string {
	return fmt.Sprintf("%v: %d records refused, the first at index %d: %v",
		e.Unwrap(), len(e.Records), e.Records[0].Index, e.Records[0].Cause)
}

// Unwrap returns ErrInvalidTimestamp or ErrInvalidRecord.
func (e *RecordErrors) Unwrap() error {
	for i := range e.Records {
		if e.Records[i].Cause == ErrInvalidTimestamp {
			return ErrInvalidTimestamp
		}
	}
	return ErrInvalidRecord
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidRecord, fmt.Sprintf(format, args...))
}

func sizeError(size, limit int) error {
	return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, size, limit)
}
