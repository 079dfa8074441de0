package bench

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"capri"
	"capri/action"
	"capri/files"
	"capri/files/local"
	"capri/internal/workload"
	"capri/wake"
)

// workload: a recorded pipeline of 472 tasks, eight levels deep, on 16 slots, runtimes divided by 100. No scheduler is
// quicker than the lower bound; one that never leaves a slot idle while something is ready is not slower than Graham's
// bound, and what is above it is the cost of handing over, level by level.
func (b *Bench) workload(ctx context.Context, d *db) error {
	if b.Workloads == "" {
		b.note("NOT MEASURED: CAPRI_WORKLOADS is not set")
		return nil
	}
	const slots, scale, perLevel = 16, 100, 100 * time.Millisecond
	w, err := workload.Load(b.Workloads, "montage-dss10")
	if err != nil {
		return err
	}
	dir := b.home()
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "data")
	if err := os.Mkdir(root, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o777); err != nil {
		return err
	}
	o := workload.Options{Scale: scale, Root: root, Unlimited: true}
	win, err := w.In(o)
	if err != nil {
		return err
	}
	if err := win.MakeInputs(); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"tasks": w.Specs(o)}) // JSON is YAML
	if err != nil {
		return err
	}
	waker := wake.NewLocal()
	act := action.New(d.store, d.cal, waker, slog.New(slog.DiscardHandler))
	var apply action.ApplyRequest
	apply.Sources = append(apply.Sources, struct {
		Name string
		Data []byte
	}{"montage.yaml", data})
	if _, err := act.Apply(ctx, "bench", apply); err != nil {
		return err
	}
	l := local.New(local.Options{})
	stop := b.clusterWith(ctx, d, dir, slots, waker, waker, files.ByScheme(map[string]files.Files{"": l, "file": l}))
	defer stop()
	time.Sleep(time.Second)
	began := time.Now()
	day := w.Day.Format("2006-01-02")
	if _, err := act.ColdStart(ctx, "bench", action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: day, To: day, ByData: true}); err != nil {
		return err
	}
	if err := d.await(ctx, len(win.Inside), 5*time.Minute); err != nil {
		return err
	}
	took := time.Since(began)
	least, most, err := w.Stats.Bounds(slots)
	if err != nil {
		return err
	}
	least, most = least/scale, most/scale
	depth := win.Figures().Depth
	limit := most + time.Duration(depth)*perLevel
	b.note("montage-dss10, %d batches, %d slots, runtimes / %d: %v from the cold start to the last end; lower bound %v, Graham's bound %v, depth %d", len(win.Inside), slots, scale, took, least, most, depth)
	b.note("(makespan - Graham's bound) / depth = %v", (took-most)/time.Duration(depth))
	b.atMost("makespan montage, 16 slots/"+d.kind, took.Seconds(), limit.Seconds(), "s", 1)
	return nil
}
