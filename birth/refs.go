package birth

import (
	"fmt"

	"capri"
	"capri/cron"
	"capri/lineage"
	"capri/sql/store"
)

// Refs turns the store's light rows into what New takes. Equal expressions are parsed once: a thousand tasks
// share a few. A task whose expression cannot be read is marked as broken, which concerns its children alone.
func Refs(rows map[capri.TaskID]store.ParentRef) map[capri.TaskID]lineage.Ref {
	refs := make(map[capri.TaskID]lineage.Ref, len(rows))
	parsed := map[string]*cron.Expression{}
	for id, r := range rows {
		ref := lineage.Ref{ID: id, Name: r.Name, Period: r.Period, First: r.FirstMark}
		if r.Period == capri.Cron {
			e := parsed[r.Cron]
			if e == nil {
				var err error
				if e, err = cron.Parse(r.Cron); err != nil {
					ref.Broken = fmt.Errorf("task %s: %w", r.Name, err)
				} else {
					parsed[r.Cron] = e
				}
			}
			ref.Cron = e
		}
		refs[id] = ref
	}
	return refs
}
