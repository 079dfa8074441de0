package worker
import ("context";"fmt";"os";"strings";"strconv";"path/filepath";"sync/atomic";"capri";"capri/sql/store")
type counting struct{ Database; claim, start, finish, kills atomic.Int64 }
func (d *counting) Claim(ctx context.Context, node, boot string, limit int) ([]store.Claimed, error) { d.claim.Add(1); return d.Database.Claim(ctx,node,boot,limit)}
func (d *counting) Start(ctx context.Context, node, boot string, a []capri.Attempt) ([]capri.Attempt, error) { d.start.Add(1); return d.Database.Start(ctx,node,boot,a)}
func (d *counting) FinishAttempts(ctx context.Context, node string, r []store.Result) (int, error) { d.finish.Add(1); return d.Database.FinishAttempts(ctx,node,r)}

func cpuOf(pid int) (self, kids float64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	s := string(b)
	s = s[strings.LastIndex(s, ")")+2:]
	f := strings.Fields(s)
	g := func(i int) float64 { v, _ := strconv.ParseFloat(f[i], 64); return v / 100 }
	return g(11) + g(12), g(13) + g(14)
}
func cpus(n *node) (o [4]float64) {
	o[0], _ = cpuOf(os.Getpid())
	lives, _ := filepath.Glob(filepath.Join(n.o.Dir, shimDir, "shim-*"))
	for _, d := range lives {
		for _, p := range shimPids(d) { a, b := cpuOf(p); o[1] += a; o[2] += b }
	}
	if p, _ := strconv.Atoi(os.Getenv("MYPID")); p > 0 { o[3], _ = cpuOf(p) }
	return
}
