package store

import "capri"

// OverdueText, BusyNodesText and TakenText are statements whose plans a test looks at.
func OverdueText(before capri.Instant) (string, []any) {
	text, args, _ := overdueQuery(before, before, 2000).ToSql()
	return text, args
}

func BusyNodesText() (string, []any) {
	text, args, _ := busyNodesQuery.ToSql()
	return text, args
}

func TakenText(nodes ...string) (string, []any) {
	text, args, _ := takenQuery(nodes, 2, 1).ToSql()
	return text, args
}
