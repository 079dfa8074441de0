package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Inventory is what a node said last of the attempts that it holds: preparing, running, or ended and not yet reported.
type Inventory struct {
	Node     string
	BootID   string
	Report   int64 // counts the node's reports; one that has not grown is the same report
	At       capri.Instant
	Attempts map[capri.Attempt]bool
}

// ReportInventory replaces a node's inventory, by the life bootID of that node.
func (s *Store) ReportInventory(ctx context.Context, node, bootID string, attempts []capri.Attempt) error {
	var text strings.Builder
	for _, a := range attempts {
		text.WriteString(a.String())
		text.WriteByte('\n')
	}
	return s.Write(ctx, "report the inventory of node "+node, node, func(tx *Tx) error {
		_, err := tx.exec(sq.Insert("node_inventory").Columns("host", "boot_id", "report", "reported_at", "attempts").
			Values(node, bootID, int64(tx.Now), int64(tx.Now), text.String()).
			Suffix(s.d.Upsert([]string{"host"}, "boot_id", "reported_at", "attempts") + ", report = " + "node_inventory.report + 1"))
		return err
	})
}

// Inventories reads every node's newest inventory, by node.
func (s *Store) Inventories(ctx context.Context) (map[string]Inventory, error) {
	out := map[string]Inventory{}
	q := sq.Select("host", "boot_id", "report", "reported_at", "attempts").From("node_inventory")
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		i := Inventory{Attempts: map[capri.Attempt]bool{}}
		var text string
		if err := r.Scan(&i.Node, &i.BootID, &i.Report, &i.At, &text); err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			var a capri.Attempt
			if _, err := fmt.Sscanf(line, "%d.%d", &a.Batch, &a.Number); err != nil {
				return fmt.Errorf("inventory of node %s: %q is no attempt", i.Node, line)
			}
			i.Attempts[a] = true
		}
		out[i.Node] = i
		return nil
	})
	return out, s.fault("read the nodes' inventories", err)
}
