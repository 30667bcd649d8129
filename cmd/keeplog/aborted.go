package main

import (
	"cmp"
	"slices"

	"github.com/keeplog/keeplog/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// abortedTransactions follows, over the batches of one answer, which producers are inside a transaction that was
// aborted. Its zero value drops nothing.
type abortedTransactions struct {
	list []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset
	open map[int64]bool
}

func newAborted(list []kmsg.FetchResponseTopicPartitionAbortedTransaction, committed bool) *abortedTransactions {
	if !committed || len(list) == 0 {
		return &abortedTransactions{}
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return &abortedTransactions{list: list, open: map[int64]bool{}}
}

// drops says whether b is of an aborted transaction. Batches come in the order of the log.
func (a *abortedTransactions) drops(b record.Batch) bool {
	if a.open == nil {
		return false
	}
	for len(a.list) > 0 && a.list[0].FirstOffset <= int64(b.LastOffset()) {
		a.open[a.list[0].ProducerID] = true
		a.list = a.list[1:]
	}
	return b.Transactional() && a.open[int64(b.ProducerID())]
}

// control sees the marker that ends a transaction.
func (a *abortedTransactions) control(b record.Batch, p *printer) error {
	if a.open == nil {
		return nil
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	records, err := p.codecs.Unpack(b, nil, maxUnpacked)
	if err != nil {
		return err
	}
	it := record.Iterate(b, records)
	if !it.Next() {
		if it.Err() != nil {
			return it.Err()
		}
		return nil // compacted away; the next transaction of the producer has its own entry
	}
	c, err := record.ParseControl(it.Record())
	if err != nil {
		return err
	}
	if c.Type == record.ControlAbort {
		delete(a.open, int64(b.ProducerID()))
	}
	return nil
}
