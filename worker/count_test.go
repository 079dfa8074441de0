package worker
import ("context";"sync/atomic";"capri";"capri/sql/store")
type counting struct{ Database; claim, start, finish, kills atomic.Int64 }
func (d *counting) Claim(ctx context.Context, node, boot string, limit int) ([]store.Claimed, error) { d.claim.Add(1); return d.Database.Claim(ctx,node,boot,limit)}
func (d *counting) Start(ctx context.Context, node, boot string, a []capri.Attempt) ([]capri.Attempt, error) { d.start.Add(1); return d.Database.Start(ctx,node,boot,a)}
func (d *counting) FinishAttempts(ctx context.Context, node string, r []store.Result) (int, error) { d.finish.Add(1); return d.Database.FinishAttempts(ctx,node,r)}
