package store

import (
	"context"
	"fmt"
	"sync"

	sq "github.com/Masterminds/squirrel"
)

// idBlocks hands out ids reserved in blocks. A block that is lost with its process leaves a gap, which is harmless.
type idBlocks struct {
	mu   sync.Mutex
	next map[string]*idRange
}

type idRange struct {
	next, end int64 // [next, end)
	block     int   // size of the next block
}

// Blocks begin small, so that a quiet installation's ids stay close together, and grow with what is asked for, so that a
// mark of a hundred thousand batches does not wait for a hundred reservations.
const smallestBlock, largestBlock = 100, 10_000

// reserve gives the first of n ids that nobody else will ever get, in a transaction of its own: called
// before the transaction that uses them, because with SQLite there is only one writer.
func (s *Store) reserve(ctx context.Context, name string, n int) (int64, error) {
	s.ids.mu.Lock()
	defer s.ids.mu.Unlock()
	r := s.ids.next[name]
	if r == nil {
		r = &idRange{}
		s.ids.next[name] = r
	}
	if r.end-r.next < int64(n) {
		r.block = min(max(2*r.block, smallestBlock), largestBlock)
		want := max(n, r.block)
		err := s.Write(ctx, "reserve ids", "store", func(tx *Tx) error {
			var first int64
			found, err := one(tx.ctx, tx.tx, sq.Select("next_id").From("id_block").Where(sq.Eq{"name": name}).Suffix(s.d.ForUpdate), &first)
			if err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("table id_block has no row %q: run capri migrate up", name)
			}
			_, err = tx.exec(sq.Update("id_block").Set("next_id", first+int64(want)).Where(sq.Eq{"name": name}))
			r.next, r.end = first, first+int64(want)
			return err
		})
		if err != nil {
			r.next, r.end = 0, 0
			return 0, err
		}
	}
	first := r.next
	r.next += int64(n)
	return first, nil
}
