package store

import (
	sq "github.com/Masterminds/squirrel"

	"capri"
)

// ReadyText and RecountText are statements whose plans a test looks at.
func ReadyText(now capri.Instant, limit int) (string, []any) {
	text, args, _ := readyQuery(now, 0, ReadyAfter{}, limit).ToSql()
	return text, args
}

func RecountText(ids []capri.BatchID) (string, []any) {
	text, args, _ := sq.Update("task_work").Set("unmet", sq.Expr(unmetNow)).Where(idIn("id", ids)).ToSql()
	return text, args
}
