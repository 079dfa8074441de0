package generate

import (
	"context"
	"fmt"

	"capri"
	"capri/birth"
	"capri/calendar"
	"capri/lineage"
	"capri/sql/store"
)

// parents is what a turn knows of tasks that others wait for. They are read when the first child comes, a page's at
// once: of a million tasks few are parents.
type parents struct {
	maker  *birth.Maker
	refs   map[capri.TaskID]lineage.Ref
	asked  map[capri.TaskID]bool
	broken map[capri.TaskID]error
}

func knowNobody(c calendar.Calendar) parents {
	p := parents{refs: map[capri.TaskID]lineage.Ref{}, asked: map[capri.TaskID]bool{}, broken: map[capri.TaskID]error{}}
	p.maker = birth.New(c, p.refs)
	return p
}

// read makes the parents of tasks known.
func (p *parents) read(ctx context.Context, s *store.Store, tasks []*capri.Task) error {
	var ids []capri.TaskID
	for _, t := range tasks {
		for _, parent := range t.Parents {
			if !p.asked[parent.TaskID] {
				p.asked[parent.TaskID] = true
				ids = append(ids, parent.TaskID)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.ParentRefsOf(ctx, ids)
	if err != nil {
		return err
	}
	for id, row := range rows {
		ref, err := birth.Refs(map[capri.TaskID]store.ParentRef{id: row})
		if err != nil { // its children have no batch until it is mended; nobody else minds
			p.broken[id] = err
			continue
		}
		p.refs[id] = ref[id]
	}
	return nil
}

// batch makes a batch whose parents were read.
func (p *parents) batch(t *birth.Task, iv capri.Interval, origin capri.Origin, now capri.Instant) (*capri.NewBatch, error) {
	for _, parent := range t.Parents {
		if err := p.broken[parent.TaskID]; err != nil {
			return nil, fmt.Errorf("parent %s: %w", parent.Task, err)
		}
	}
	return p.maker.Batch(t, iv, origin, 0, now)
}
