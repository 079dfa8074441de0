package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"capri"
	"capri/api/wire"
)

const (
	get    = http.MethodGet
	post   = http.MethodPost
	put    = http.MethodPut
	remove = http.MethodDelete
)

// one sends a request whose answer is a T.
func one[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (T, error) {
	var out T
	err := c.call(ctx, method, path, query, body, &out)
	return out, err
}

// pages reads a list page by page until it has limit rows; 0: all of them.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values, limit int) ([]T, error) {
	const most = 1000 // what the server gives at once
	out := []T{}
	for {
		size := most
		if limit > 0 {
			size = min(most, limit-len(out))
		}
		query.Set("limit", strconv.Itoa(size))
		page, err := one[wire.Page[T]](ctx, c, get, path, query, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Next == "" || limit > 0 && len(out) >= limit {
			return out, nil
		}
		query.Set("cursor", page.Next)
	}
}

// values makes a query of pairs; empty ones are left out.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}

func number[T ~int | ~int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func truth(b bool) string {
	if b {
		return "true"
	}
	return ""
}

func (c *Client) Status(ctx context.Context) (wire.Status, error) {
	return one[wire.Status](ctx, c, get, "/status", nil, nil)
}

// TaskFilter narrows a list of tasks; empty fields do not.
type TaskFilter struct {
	Group, Owner, Period, Enabled string
}

func (c *Client) Tasks(ctx context.Context, f TaskFilter) ([]wire.Task, error) {
	return pages[wire.Task](ctx, c, "/tasks", values("group", f.Group, "owner", f.Owner, "period", f.Period, "enabled", f.Enabled), 0)
}

func (c *Client) Task(ctx context.Context, name string) (wire.Task, error) {
	return one[wire.Task](ctx, c, get, path("tasks", name), nil, nil)
}

func (c *Client) TaskHistory(ctx context.Context, name string) ([]wire.TaskVersion, error) {
	return pages[wire.TaskVersion](ctx, c, path("tasks", name, "history"), url.Values{}, 0)
}

func (c *Client) Apply(ctx context.Context, a wire.Apply) (wire.Applied, error) {
	return one[wire.Applied](ctx, c, post, "/tasks:apply", nil, a)
}

func (c *Client) EnableTasks(ctx context.Context, names wire.Names, enabled bool) ([]wire.NameResult, error) {
	verb := "/tasks:disable"
	if enabled {
		verb = "/tasks:enable"
	}
	return one[[]wire.NameResult](ctx, c, post, verb, nil, names)
}

func (c *Client) DeleteTask(ctx context.Context, name string) error {
	return c.call(ctx, remove, path("tasks", name), nil, nil, nil)
}

// Export gives task files' YAML.
func (c *Client) Export(ctx context.Context, group string, names []string) ([]byte, error) {
	resp, err := c.send(ctx, get, "/tasks:export", values("group", group, "names", strings.Join(names, ",")), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (c *Client) Execute(ctx context.Context, task string, x wire.Execute) (wire.Batch, error) {
	return one[wire.Batch](ctx, c, post, path("tasks", task)+":execute", nil, x)
}

// RunTaskNow is RunNow for a task's newest ended interval.
func (c *Client) RunTaskNow(ctx context.Context, task, reason string) (wire.Batch, error) {
	return one[wire.Batch](ctx, c, post, path("tasks", task)+":run-now", nil, wire.Reason{Reason: reason})
}

func (c *Client) ColdStart(ctx context.Context, cs wire.ColdStart) (wire.CampaignPlan, error) {
	return one[wire.CampaignPlan](ctx, c, post, "/cold-starts", nil, cs)
}

func (c *Client) Rerun(ctx context.Context, task string, r wire.Rerun) (wire.CampaignPlan, error) {
	return one[wire.CampaignPlan](ctx, c, post, path("tasks", task, "rerun"), nil, r)
}

func (c *Client) Plan(ctx context.Context, task, from, to string, limit int) ([]wire.PlanRow, error) {
	return one[[]wire.PlanRow](ctx, c, get, "/plan", values("task", task, "from", from, "to", to, "limit", number(limit)), nil)
}

func (c *Client) Batches(ctx context.Context, b wire.Batches) ([]wire.Batch, error) {
	q := values("task", b.Task, "state", b.State, "finish_state", b.FinishState, "period", b.Period, "group", b.Group, "owner", b.Owner, "department", b.Department,
		"node", b.Node, "campaign", number(b.Campaign), "from", b.From, "to", b.To, "by_data", truth(b.ByData), "late", truth(b.Late), "all_runs", truth(b.AllRuns),
		"archived", truth(b.Archived))
	if b.Oldest {
		q.Set("order", "oldest")
	}
	return pages[wire.Batch](ctx, c, "/batches", q, b.Limit)
}

func batchPath(id capri.BatchID) string { return path("batches", strconv.FormatInt(int64(id), 10)) }

func (c *Client) Batch(ctx context.Context, id capri.BatchID) (wire.BatchDetail, error) {
	return one[wire.BatchDetail](ctx, c, get, batchPath(id), nil, nil)
}

func (c *Client) Why(ctx context.Context, id capri.BatchID) (wire.Why, error) {
	return one[wire.Why](ctx, c, get, batchPath(id)+"/why", nil, nil)
}

// Kill, Hold, Release, ForceSuccess and RunNow do what they say to several batches.
func (c *Client) Kill(ctx context.Context, ids wire.IDs) ([]wire.IDResult, error) {
	return one[[]wire.IDResult](ctx, c, post, "/batches:kill", nil, ids)
}

func (c *Client) Hold(ctx context.Context, ids wire.IDs) ([]wire.IDResult, error) {
	return one[[]wire.IDResult](ctx, c, post, "/batches:hold", nil, ids)
}

func (c *Client) Release(ctx context.Context, ids wire.IDs) ([]wire.IDResult, error) {
	return one[[]wire.IDResult](ctx, c, post, "/batches:release", nil, ids)
}

func (c *Client) ForceSuccess(ctx context.Context, ids wire.IDs) ([]wire.IDResult, error) {
	return one[[]wire.IDResult](ctx, c, post, "/batches:force-success", nil, ids)
}

func (c *Client) RunNow(ctx context.Context, ids wire.IDs) ([]wire.IDResult, error) {
	return one[[]wire.IDResult](ctx, c, post, "/batches:run-now", nil, ids)
}

// QualityVerdict opens or closes a batch's quality gate.
func (c *Client) QualityVerdict(ctx context.Context, id capri.BatchID, v wire.QualityVerdict) error {
	return c.call(ctx, post, batchPath(id)+"/quality", nil, v, nil)
}

// ReportCode says how the attempt went whose token the client has.
func (c *Client) ReportCode(ctx context.Context, code wire.UserCode) error {
	return c.call(ctx, post, "/attempt/code", nil, code, nil)
}

// ReportProgress says how far the attempt has come whose token the client has.
func (c *Client) ReportProgress(ctx context.Context, p wire.Progress) error {
	return c.call(ctx, post, "/attempt/progress", nil, p, nil)
}

// ReportApplication says what the attempt has started elsewhere whose token the client has.
func (c *Client) ReportApplication(ctx context.Context, of wire.Application) error {
	return c.call(ctx, post, "/attempt/application", nil, of, nil)
}

// Log is a piece of a batch's output.
type Log struct {
	Data     []byte
	Next     int64
	Complete bool // no more will come after Next
}

// Log reads a piece; attempt 0 is the newest, limit 0 leaves the size to the server.
func (c *Client) Log(ctx context.Context, id capri.BatchID, attempt int, stderr bool, offset int64, limit int) (Log, error) {
	stream := "out"
	if stderr {
		stream = "err"
	}
	resp, err := c.send(ctx, get, batchPath(id)+"/logs", values("attempt", number(attempt), "stream", stream, "offset", number(offset), "limit", number(limit)), nil)
	if err != nil {
		return Log{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return Log{}, c.unreachable(err)
	}
	next, err := strconv.ParseInt(resp.Header.Get(wire.HeaderNextOffset), 10, 64)
	if err != nil {
		return Log{}, c.unreachable(fmt.Errorf("its answer has no %s", wire.HeaderNextOffset))
	}
	return Log{Data: data, Next: next, Complete: resp.Header.Get(wire.HeaderComplete) == "true"}, nil
}

func (c *Client) ThirdParty(ctx context.Context, code string, said wire.Said) error {
	return c.call(ctx, post, path("third-party", code), nil, said, nil)
}

func (c *Client) Nodes(ctx context.Context) ([]wire.Node, error) {
	return one[[]wire.Node](ctx, c, get, "/nodes", nil, nil)
}

func (c *Client) DrainNode(ctx context.Context, name, reason string) error {
	return c.call(ctx, post, path("nodes", name)+":drain", nil, wire.Reason{Reason: reason}, nil)
}

func (c *Client) ResumeNode(ctx context.Context, name, reason string) error {
	return c.call(ctx, post, path("nodes", name)+":resume", nil, wire.Reason{Reason: reason}, nil)
}

func (c *Client) RemoveNode(ctx context.Context, name string) error {
	return c.call(ctx, remove, path("nodes", name), nil, nil, nil)
}

func (c *Client) Services(ctx context.Context) ([]wire.Service, error) {
	return one[[]wire.Service](ctx, c, get, "/services", nil, nil)
}

// RunFilter chooses runs of a service; empty fields choose all.
type RunFilter struct {
	Failed   bool
	From, To string
}

// ServiceRuns lists what a service did, the newest first; limit 0: all.
func (c *Client) ServiceRuns(ctx context.Context, name string, f RunFilter, limit int) ([]wire.ServiceRun, error) {
	return pages[wire.ServiceRun](ctx, c, path("services", name, "runs"), values("failed", truth(f.Failed), "from", f.From, "to", f.To), limit)
}

func (c *Client) Masters(ctx context.Context) ([]wire.Master, error) {
	return one[[]wire.Master](ctx, c, get, "/masters", nil, nil)
}

func (c *Client) TriggerService(ctx context.Context, name string) error {
	return c.call(ctx, post, path("services", name)+":trigger", nil, nil, nil)
}

func (c *Client) PauseDispatch(ctx context.Context, p wire.Pause) error {
	return c.call(ctx, post, "/dispatch:pause", nil, p, nil)
}

func (c *Client) ResumeDispatch(ctx context.Context, r wire.Resume) error {
	return c.call(ctx, post, "/dispatch:resume", nil, r, nil)
}

// Dispatch tells what keeps batches from being placed.
func (c *Client) Dispatch(ctx context.Context) (wire.Dispatch, error) {
	return one[wire.Dispatch](ctx, c, get, "/dispatch", nil, nil)
}

func (c *Client) LimitDispatch(ctx context.Context, l wire.DispatchLimit) error {
	return c.call(ctx, post, "/dispatch:limit", nil, l, nil)
}

func (c *Client) OpenBreaker(ctx context.Context, b wire.Breaker) error {
	return c.call(ctx, post, "/breakers:open", nil, b, nil)
}

func (c *Client) CloseBreaker(ctx context.Context, b wire.Breaker) error {
	return c.call(ctx, post, "/breakers:close", nil, b, nil)
}

func (c *Client) Alerts(ctx context.Context, limit int) ([]wire.Alert, error) {
	return pages[wire.Alert](ctx, c, "/alerts", url.Values{}, limit)
}

// RaiseAlert raises an alert.
func (c *Client) RaiseAlert(ctx context.Context, a wire.NewAlert) error {
	return c.call(ctx, post, "/alerts", nil, a, nil)
}

// Incidents lists incidents, newest first; all: those that are over, too.
func (c *Client) Incidents(ctx context.Context, all bool, limit int) ([]wire.Incident, error) {
	return pages[wire.Incident](ctx, c, "/incidents", values("all", truth(all)), limit)
}

// Incident reads one, with who was told of it.
func (c *Client) Incident(ctx context.Context, id int64) (wire.IncidentDetail, error) {
	return one[wire.IncidentDetail](ctx, c, get, "/incidents/"+strconv.FormatInt(id, 10), nil, nil)
}

// AcknowledgeIncident says that somebody looks after it.
func (c *Client) AcknowledgeIncident(ctx context.Context, id int64) error {
	return c.call(ctx, post, "/incidents/"+strconv.FormatInt(id, 10)+"/ack", nil, nil, nil)
}

// Silences lists those that stand.
func (c *Client) Silences(ctx context.Context) ([]wire.Silence, error) {
	return one[[]wire.Silence](ctx, c, get, "/silences", nil, nil)
}

// Silence keeps people from being told.
func (c *Client) Silence(ctx context.Context, x wire.Silence) (wire.Silence, error) {
	return one[wire.Silence](ctx, c, post, "/silences", nil, x)
}

// EndSilence ends one now.
func (c *Client) EndSilence(ctx context.Context, id int64) error {
	return c.call(ctx, remove, "/silences/"+strconv.FormatInt(id, 10), nil, nil, nil)
}

// TestChannel sends a message by a channel.
func (c *Client) TestChannel(ctx context.Context, x wire.ChannelTest) (wire.ChannelTestResult, error) {
	return one[wire.ChannelTestResult](ctx, c, post, "/alerts/test", nil, x)
}

// ActionFilter chooses actions; empty fields choose all.
type ActionFilter struct{ Who, Action, Target, Task, RequestID, From, To string }

// Actions lists what people and apps did, newest first.
func (c *Client) Actions(ctx context.Context, f ActionFilter, limit int) ([]wire.Action, error) {
	return pages[wire.Action](ctx, c, "/actions", values("who", f.Who, "action", f.Action, "target", f.Target, "task", f.Task, "request_id", f.RequestID,
		"from", f.From, "to", f.To), limit)
}

func (c *Client) Users(ctx context.Context) ([]wire.User, error) {
	return one[[]wire.User](ctx, c, get, "/users", nil, nil)
}

func (c *Client) SaveUser(ctx context.Context, u wire.User) error {
	return c.call(ctx, put, path("users", u.Name), nil, u, nil)
}

func (c *Client) DeleteUser(ctx context.Context, name string) error {
	return c.call(ctx, remove, path("users", name), nil, nil, nil)
}

func (c *Client) Departments(ctx context.Context) ([]wire.Department, error) {
	return one[[]wire.Department](ctx, c, get, "/departments", nil, nil)
}

func (c *Client) SaveDepartment(ctx context.Context, d wire.Department) error {
	return c.call(ctx, put, path("departments", d.Name), nil, d, nil)
}

func (c *Client) DeleteDepartment(ctx context.Context, name string) error {
	return c.call(ctx, remove, path("departments", name), nil, nil, nil)
}

func (c *Client) AccountGrants(ctx context.Context) ([]wire.AccountGrant, error) {
	return one[[]wire.AccountGrant](ctx, c, get, "/account-grants", nil, nil)
}

func (c *Client) GrantAccount(ctx context.Context, g wire.AccountGrant) error {
	return c.call(ctx, put, "/account-grants", nil, g, nil)
}

func (c *Client) RevokeAccount(ctx context.Context, g wire.AccountGrant) error {
	return c.call(ctx, remove, "/account-grants", values("account", g.Account, "kind", g.Kind, "name", g.Name), nil, nil)
}

func (c *Client) Apps(ctx context.Context) ([]wire.App, error) {
	return one[[]wire.App](ctx, c, get, "/apps", nil, nil)
}

func (c *Client) CreateApp(ctx context.Context, a wire.NewApp) (wire.NewKey, error) {
	return one[wire.NewKey](ctx, c, post, "/apps", nil, a)
}

// SaveApp changes an app, and none of its keys.
func (c *Client) SaveApp(ctx context.Context, a wire.App) error {
	return c.call(ctx, put, path("apps", a.Name), nil, a, nil)
}

// RotateApp gives an app another key; those of now stay good for a while.
func (c *Client) RotateApp(ctx context.Context, name string, r wire.KeyRotation) (wire.NewKey, error) {
	return one[wire.NewKey](ctx, c, post, path("apps", name)+":rotate", nil, r)
}

func (c *Client) WorkerKeys(ctx context.Context) ([]wire.Key, error) {
	return one[[]wire.Key](ctx, c, get, "/worker-keys", nil, nil)
}

func (c *Client) CreateWorkerKey(ctx context.Context, k wire.NewWorkerKey) (wire.NewKey, error) {
	return one[wire.NewKey](ctx, c, post, "/worker-keys", nil, k)
}

func (c *Client) RevokeWorkerKey(ctx context.Context, id int64) error {
	return c.call(ctx, remove, "/worker-keys/"+strconv.FormatInt(id, 10), nil, nil, nil)
}

// LogIn begins a session.
func (c *Client) LogIn(ctx context.Context, l wire.LogIn) (wire.Session, error) {
	return one[wire.Session](ctx, c, post, "/login", nil, l)
}

// LogOut ends the session of this client.
func (c *Client) LogOut(ctx context.Context) error {
	return c.call(ctx, post, "/logout", nil, nil, nil)
}

func (c *Client) Me(ctx context.Context) (wire.Me, error) {
	return one[wire.Me](ctx, c, get, "/me", nil, nil)
}

// ChangePassword sets one's own password, and gives the session that goes on.
func (c *Client) ChangePassword(ctx context.Context, p wire.PasswordChange) (wire.Session, error) {
	return one[wire.Session](ctx, c, put, "/me/password", nil, p)
}

// Tokens lists one's own (user empty), a user's, or everybody's (~).
func (c *Client) Tokens(ctx context.Context, user string) ([]wire.Key, error) {
	return one[[]wire.Key](ctx, c, get, "/tokens", values("user", user), nil)
}

func (c *Client) CreateToken(ctx context.Context, t wire.NewToken) (wire.Token, error) {
	return one[wire.Token](ctx, c, post, "/tokens", nil, t)
}

func (c *Client) RevokeToken(ctx context.Context, id int64) error {
	return c.call(ctx, remove, "/tokens/"+strconv.FormatInt(id, 10), nil, nil, nil)
}

func (c *Client) EnableUser(ctx context.Context, name string) error {
	return c.call(ctx, post, path("users", name)+":enable", nil, nil, nil)
}

func (c *Client) DisableUser(ctx context.Context, name string) error {
	return c.call(ctx, post, path("users", name)+":disable", nil, nil, nil)
}

// ResetPassword gives a user a one-time password.
func (c *Client) ResetPassword(ctx context.Context, name string) (wire.OneTimePassword, error) {
	return one[wire.OneTimePassword](ctx, c, post, path("users", name)+":reset-password", nil, nil)
}

func (c *Client) DeleteApp(ctx context.Context, name string) error {
	return c.call(ctx, remove, path("apps", name), nil, nil, nil)
}

// Rotas gives the duty rotas of all departments, or of one.
func (c *Client) Rotas(ctx context.Context, department string) ([]wire.Rota, error) {
	return one[[]wire.Rota](ctx, c, get, "/duty", values("department", department), nil)
}

// SetDuty makes or replaces rotas, and gives the coming weeks.
func (c *Client) SetDuty(ctx context.Context, s wire.SetDuty) ([]wire.DutyPlan, error) {
	return one[[]wire.DutyPlan](ctx, c, put, "/duty", nil, s)
}

// DeleteDuty forgets a rota; wire.SystemDuty is the system's.
func (c *Client) DeleteDuty(ctx context.Context, department string) error {
	return c.call(ctx, remove, path("duty", department), nil, nil, nil)
}

func (c *Client) DutyNow(ctx context.Context, department string) ([]wire.DutyNow, error) {
	return one[[]wire.DutyNow](ctx, c, get, "/duty/now", values("department", department), nil)
}

func (c *Client) DutyShifts(ctx context.Context, department, from, to string) ([]wire.DutyPlan, error) {
	return one[[]wire.DutyPlan](ctx, c, get, "/duty/shifts", values("department", department, "from", from, "to", to), nil)
}

func (c *Client) DutyOverrides(ctx context.Context, department string) ([]wire.DutyOverride, error) {
	return one[[]wire.DutyOverride](ctx, c, get, "/duty/overrides", values("department", department), nil)
}

func (c *Client) AddDutyOverride(ctx context.Context, o wire.NewDutyOverride) (wire.DutyOverride, error) {
	return one[wire.DutyOverride](ctx, c, post, "/duty/overrides", nil, o)
}

func (c *Client) DeleteDutyOverride(ctx context.Context, id int64) error {
	return c.call(ctx, remove, path("duty", "overrides", strconv.FormatInt(id, 10)), nil, nil, nil)
}

// GrantAlert gives a user the alert rights of a task that g names, and no other.
func (c *Client) GrantAlert(ctx context.Context, task string, g wire.AlertGrant) error {
	return c.call(ctx, put, path("tasks", task, "alert-grants", g.User), nil, g, nil)
}

func (c *Client) RevokeAlert(ctx context.Context, task, user string) error {
	return c.call(ctx, remove, path("tasks", task, "alert-grants", user), nil, nil, nil)
}

// CampaignFilter chooses campaigns; empty fields choose all.
type CampaignFilter struct{ State, From, To string }

// Campaigns lists them, the newest first; limit 0: all.
func (c *Client) Campaigns(ctx context.Context, f CampaignFilter, limit int) ([]wire.Campaign, error) {
	return pages[wire.Campaign](ctx, c, "/campaigns", values("state", f.State, "from", f.From, "to", f.To), limit)
}

func (c *Client) Campaign(ctx context.Context, id capri.CampaignID) (wire.CampaignDetail, error) {
	return one[wire.CampaignDetail](ctx, c, get, path("campaigns", number(id)), nil, nil)
}

// CampaignItems lists what a campaign does, in its order.
func (c *Client) CampaignItems(ctx context.Context, id capri.CampaignID, action string, limit int) ([]wire.CampaignItem, error) {
	return pages[wire.CampaignItem](ctx, c, path("campaigns", number(id), "items"), values("action", action), limit)
}

func (c *Client) RunCampaign(ctx context.Context, id capri.CampaignID, r wire.CampaignRun) (wire.Campaign, error) {
	return one[wire.Campaign](ctx, c, post, path("campaigns", number(id), "run"), nil, r)
}

func (c *Client) DropItems(ctx context.Context, id capri.CampaignID, items []string) (wire.Dropped, error) {
	return one[wire.Dropped](ctx, c, post, path("campaigns", number(id), "drop"), nil, wire.CampaignDrop{Items: items})
}

func (c *Client) LimitCampaign(ctx context.Context, id capri.CampaignID, limit int) (wire.Campaign, error) {
	return one[wire.Campaign](ctx, c, post, path("campaigns", number(id), "limit"), nil, wire.CampaignLimit{Limit: limit})
}

func (c *Client) PauseCampaign(ctx context.Context, id capri.CampaignID, r wire.CampaignChange) (wire.Campaign, error) {
	return one[wire.Campaign](ctx, c, post, path("campaigns", number(id), "pause"), nil, r)
}

func (c *Client) ResumeCampaign(ctx context.Context, id capri.CampaignID, r wire.CampaignChange) (wire.Campaign, error) {
	return one[wire.Campaign](ctx, c, post, path("campaigns", number(id), "resume"), nil, r)
}

func (c *Client) CancelCampaign(ctx context.Context, id capri.CampaignID, r wire.CampaignChange) (wire.Campaign, error) {
	return one[wire.Campaign](ctx, c, post, path("campaigns", number(id), "cancel"), nil, r)
}
