package store

import (
	"context"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Answers that are kept, so that whoever repeats a request gets them again (docs/api.md). A row is made before the request
// is handled and says that it is under way. The transaction in which the request does what it does marks it as done, so
// that after a death in between nobody does it twice; the answer is written when it has gone out.

const (
	repeatUnderWay = 0
	repeatDone     = 1 // and no answer is kept
)

// Repeatable is a request with an idempotency key. ID and Request are sums: of the caller and the key, and of what is asked.
type Repeatable struct {
	ID, Request string
}

// Repeated is what became of a request that came before.
type Repeated struct {
	Other    bool // the key came with another request
	UnderWay bool
	Answer   *Answer // nil: it was done, and there is no answer to give
}

// Answer is one that is kept.
type Answer struct {
	Status  int
	Headers string
	Body    []byte
}

// RepeatsKept is for how long answers are kept.
const RepeatsKept = 24 * time.Hour

// BeginRepeatable notes a request that may come again; nil: nobody has sent it before, and the caller is to do it. One
// that is under way for longer than any request takes was left by a process that died, and is done again.
func (s *Store) BeginRepeatable(ctx context.Context, r Repeatable, longest time.Duration) (*Repeated, error) {
	var found *Repeated
	err := s.Write(ctx, "note a request that may be repeated", "api", func(tx *Tx) error {
		found = nil
		var request string
		var a Answer
		var at capri.Instant
		var status int
		exists, err := one(tx.ctx, tx.tx, sq.Select("request", "status", "headers", "body", "created_at").From("idempotency_key").Where(sq.Eq{"id": r.ID}).Suffix(tx.s.d.ForUpdate),
			&request, &status, &a.Headers, &a.Body, &at)
		if err != nil {
			return err
		}
		row := sq.Eq{"id": r.ID}
		switch {
		case !exists:
			_, err := tx.exec(sq.Insert("idempotency_key").Columns("id", "request", "status", "headers", "created_at").Values(r.ID, r.Request, repeatUnderWay, "", int64(tx.Now)))
			if tx.s.d.IsDuplicate(err) { // somebody else was first, between our look and our insert
				found = &Repeated{UnderWay: true}
				return nil
			}
			return err
		case tx.Now.Sub(at) > RepeatsKept, status == repeatUnderWay && tx.Now.Sub(at) > longest:
			_, err := tx.exec(sq.Update("idempotency_key").SetMap(map[string]any{"request": r.Request, "status": repeatUnderWay, "headers": "", "body": nil, "created_at": int64(tx.Now)}).Where(row))
			return err
		case request != r.Request:
			found = &Repeated{Other: true}
		case status == repeatUnderWay:
			found = &Repeated{UnderWay: true}
		case status == repeatDone:
			found = &Repeated{UnderWay: tx.Now.Sub(at) <= longest}
		default:
			a.Status = status
			found = &Repeated{Answer: &a}
		}
		return nil
	})
	return found, err
}

// EndRepeatable keeps the answer; nil: nothing was done, and the same may be tried again. What was done is never forgotten.
func (s *Store) EndRepeatable(ctx context.Context, r Repeatable, a *Answer) error {
	return s.Write(ctx, "keep an answer", "api", func(tx *Tx) error {
		mine := sq.Eq{"id": r.ID, "request": r.Request}
		if a == nil {
			_, err := tx.exec(sq.Delete("idempotency_key").Where(mine).Where("status = ?", repeatUnderWay))
			return err
		}
		_, err := tx.exec(sq.Update("idempotency_key").SetMap(map[string]any{"status": a.Status, "headers": a.Headers, "body": a.Body}).Where(mine))
		return err
	})
}

// ForgetRepeatables deletes answers that are old.
func (s *Store) ForgetRepeatables(ctx context.Context, lease capri.Lease, before capri.Instant, limit int) (n int, err error) {
	err = s.WriteAs(ctx, "forget answers", lease, func(tx *Tx) error {
		ids, err := column[string](tx.ctx, tx.tx, sq.Select("id").From("idempotency_key").Where("created_at < ?", int64(before)).OrderBy("created_at").Limit(uint64(limit)))
		if err != nil || len(ids) == 0 {
			return err
		}
		n, err = tx.exec(sq.Delete("idempotency_key").Where(sq.Eq{"id": ids}).Where("created_at < ?", int64(before)))
		return err
	})
	return n, err
}

type repeatableKey struct{}

// WithRepeatable has every transaction of a person note that it did what the request asks for.
func WithRepeatable(ctx context.Context, r Repeatable) context.Context {
	return context.WithValue(ctx, repeatableKey{}, r)
}

// noteRepeatable is part of the transaction that does what a request asks for.
func (tx *Tx) noteRepeatable() error {
	r, ok := tx.ctx.Value(repeatableKey{}).(Repeatable)
	if !ok {
		return nil
	}
	_, err := tx.exec(sq.Update("idempotency_key").Set("status", repeatDone).Where(sq.Eq{"id": r.ID, "status": repeatUnderWay}))
	return err
}
