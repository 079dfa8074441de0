package generate

import (
	"context"
	"maps"

	"capri"
	"capri/birth"
	"capri/calendar"
	"capri/lineage"
	"capri/sql/store"
)

// parents is what a turn knows of tasks that others wait for. They are read when the first child comes, a page's at
// once: of a million tasks few are parents.
type parents struct {
	maker *birth.Maker
	refs  map[capri.TaskID]lineage.Ref
	asked map[capri.TaskID]bool
}

func knowNobody(c calendar.Calendar) parents {
	p := parents{refs: map[capri.TaskID]lineage.Ref{}, asked: map[capri.TaskID]bool{}}
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
	maps.Copy(p.refs, birth.Refs(rows))
	return nil
}
