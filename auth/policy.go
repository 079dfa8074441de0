package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"capri"
	"capri/sql/store"
)

// Kind is what sort of caller a principal is.
type Kind string

const (
	User   Kind = "user"   // a person, with a session or a token
	App    Kind = "app"    // a client with a key
	Worker Kind = "worker" // a worker with its key, bound to a node and a pool
	Job    Kind = "job"    // a job that speaks of its own attempt
)

// Scope is a group of acts that an app's key is made for. Its role says how far it reaches, its scopes for what.
type Scope string

const (
	ScopeAll        Scope = "all"         // every act that the role allows
	ScopeRead       Scope = "read"        // looking, but for logs
	ScopeLogs       Scope = "logs"        // what jobs wrote
	ScopeTasks      Scope = "tasks"       // definitions
	ScopeBatches    Scope = "batches"     // execute, rerun, kill, hold …
	ScopeThirdParty Scope = "third-party" // third parties' data, verdicts of the quality API
	ScopeAlerts     Scope = "alerts"      // raise, acknowledge, silence, duty
	ScopeOperations Scope = "operations"  // nodes, services, pauses, cold starts
	ScopeMetrics    Scope = "metrics"     // what Prometheus reads, and nothing else
	ScopePeople     Scope = "people"      // users, departments, accounts, apps
)

// Scopes in the order in which they are shown.
var Scopes = []Scope{ScopeAll, ScopeRead, ScopeLogs, ScopeTasks, ScopeBatches, ScopeThirdParty, ScopeAlerts, ScopeOperations, ScopeMetrics, ScopePeople}

// ParseScope reads a scope's name.
func ParseScope(s string) (Scope, error) {
	if slices.Contains(Scopes, Scope(s)) {
		return Scope(s), nil
	}
	names := make([]string, len(Scopes))
	for i, x := range Scopes {
		names[i] = string(x)
	}
	return "", capri.Invalid("scope", s, strings.Join(names, ", "))
}

// Own says whether it counts whose the object of an act is.
type Own string

const (
	Anyones     Own = ""           // whose it is does not count, or it is nobody's
	Seen        Own = "seen"       // looking at tasks and batches: by the setting task_read
	Owned       Own = "owned"      // changing tasks and batches: a member those of his own, by the setting task_edit
	Asked       Own = "asked"      // as Owned for people; an app answers what it is asked, whosever it is
	Departments Own = "department" // a member what belongs to his own department
	Lesser      Own = "lesser"     // people whose role, before and after, is not mightier than the caller's
	Self        Own = "self"       // what is the caller's own; an admin anybody's
)

// Act is what somebody does; each operation of the API declares one.
type Act string

const (
	HealthRead    Act = "health.read"
	OpenAPIRead   Act = "openapi.read"
	IncidentLink  Act = "incident.link"
	StatusRead    Act = "status.read"
	MetricsRead   Act = "metrics.read"
	ActionRead    Act = "action.read"
	TaskRead      Act = "task.read"
	TaskEdit      Act = "task.edit"
	PlanRead      Act = "plan.read"
	BatchRead     Act = "batch.read"
	LogRead       Act = "log.read"
	BatchExecute  Act = "batch.execute"
	BatchRerun    Act = "batch.rerun"
	BatchKill     Act = "batch.kill"
	BatchHold     Act = "batch.hold"
	BatchForce    Act = "batch.force-success"
	BatchRunNow   Act = "batch.run-now"
	QualityAnswer Act = "quality.answer"
	QualityJudge  Act = "quality.judge"
	ColdStart     Act = "cold-start.run"
	CampaignRead  Act = "campaign.read"
	CampaignEdit  Act = "campaign.edit"
	ThirdParty    Act = "third-party.report"
	AttemptReport Act = "attempt.report"
	AlertRead     Act = "alert.read"
	AlertRaise    Act = "alert.raise"
	AlertGrant    Act = "alert.grant"
	IncidentAck   Act = "incident.ack"
	SilenceEdit   Act = "silence.edit"
	ChannelTest   Act = "channel.test"
	DutyRead      Act = "duty.read"
	DutyEdit      Act = "duty.edit"
	NodeRead      Act = "node.read"
	NodeEdit      Act = "node.edit"
	ServiceRead   Act = "service.read"
	ServiceEdit   Act = "service.trigger"
	DispatchPause Act = "dispatch.pause"
	DispatchLimit Act = "dispatch.limit"
	BreakerEdit   Act = "breaker.edit"
	UserRead      Act = "user.read"
	UserEdit      Act = "user.edit"
	AccountEdit   Act = "account.edit"
	AppRead       Act = "app.read"
	AppEdit       Act = "app.edit"
	LogInDo       Act = "session.begin"
	LogOutDo      Act = "session.end"
	MeRead        Act = "me.read"
	PasswordEdit  Act = "password.change"
	TokenRead     Act = "token.read"
	TokenMake     Act = "token.make"
	TokenRevoke   Act = "token.revoke"
	WorkerKeyRead Act = "worker-key.read"
	WorkerKeyEdit Act = "worker-key.edit"
)

// Rule says who may do an act. What a rule does not allow is refused.
type Rule struct {
	Act    Act
	Public bool  // nobody need say who he is
	Role   Role  // the least role of users and apps; empty: neither may
	Own    Own   // whose objects
	Scope  Scope // what an app's key has to be made for
	Worker bool  // a worker's key may, for its own node
	Job    bool  // a job may, for its own attempt
	LogIn  bool  // it takes a session: neither tokens nor apps may
	First  bool  // also before a one-time password is changed
	Does   string
}

// Policy is who may do what: the one table of it.
var Policy = []Rule{
	{Act: HealthRead, Public: true, Does: "see whether the process answers"},
	{Act: OpenAPIRead, Public: true, Does: "read what operations there are"},
	{Act: IncidentLink, Public: true, Does: "acknowledge one incident by the signed link of a message"},
	{Act: StatusRead, Role: ReadOnly, Scope: ScopeRead, Does: "see what the server says of itself and of the work in hand"},
	{Act: MetricsRead, Role: ReadOnly, Scope: ScopeMetrics, Does: "read the metrics of a process"},
	{Act: ActionRead, Role: ReadOnly, Scope: ScopeRead, Does: "read the log of actions: one's own, and those on one's own objects; admins all"},

	{Act: TaskRead, Role: ReadOnly, Own: Seen, Scope: ScopeRead, Does: "look at tasks, their history and exports"},
	{Act: TaskEdit, Role: Member, Own: Owned, Scope: ScopeTasks, Does: "apply, enable, disable and delete tasks"},
	{Act: PlanRead, Role: ReadOnly, Own: Seen, Scope: ScopeRead, Does: "see what would be generated"},
	{Act: BatchRead, Role: ReadOnly, Own: Seen, Scope: ScopeRead, Does: "look at batches and why they wait"},
	{Act: LogRead, Role: ReadOnly, Own: Seen, Scope: ScopeLogs, Does: "read what jobs wrote"},
	{Act: BatchExecute, Role: Member, Own: Owned, Scope: ScopeBatches, Does: "run a task now"},
	{Act: BatchRerun, Role: Member, Own: Owned, Scope: ScopeBatches, Does: "run batches again"},
	{Act: BatchKill, Role: Member, Own: Owned, Scope: ScopeBatches, Does: "kill batches"},
	{Act: BatchHold, Role: Member, Own: Owned, Scope: ScopeBatches, Does: "hold and release batches"},
	{Act: BatchForce, Role: Member, Own: Owned, Scope: ScopeBatches, Does: "make a success of batches that have not succeeded"},
	{Act: BatchRunNow, Role: Member, Own: Owned, Scope: ScopeBatches, Does: "let batches start without their conditions"},
	{Act: QualityAnswer, Role: Member, Own: Asked, Scope: ScopeThirdParty, Does: "answer a question of the quality gate"},
	{Act: QualityJudge, Role: Admin, Scope: ScopeBatches, Does: "open or close a quality gate by hand"},
	{Act: ColdStart, Role: SuperAdmin, Scope: ScopeOperations, Does: "make the batches of a range"},
	{Act: CampaignRead, Role: ReadOnly, Scope: ScopeRead, Does: "look at campaigns"},
	{Act: CampaignEdit, Role: Member, Own: Self, Scope: ScopeBatches, Does: "run, narrow, pause, resume and cancel campaigns"},
	{Act: ThirdParty, Role: Member, Scope: ScopeThirdParty, Does: "say what a third party says of an interval"},
	{Act: AttemptReport, Job: true, Does: "report how the caller's own attempt goes"},

	{Act: AlertRead, Role: ReadOnly, Own: Seen, Scope: ScopeRead, Does: "look at alerts, incidents and silences"},
	{Act: AlertRaise, Role: Member, Own: Seen, Scope: ScopeAlerts, Worker: true, Does: "raise an alert"},
	{Act: AlertGrant, Role: Member, Own: Owned, Scope: ScopeAlerts, Does: "say who is told of a task's alerts"},
	{Act: IncidentAck, Role: Member, Own: Seen, Scope: ScopeAlerts, Does: "acknowledge incidents: who is on duty need not be of the department"},
	{Act: SilenceEdit, Role: Member, Own: Owned, Scope: ScopeAlerts, Does: "make and end silences of tasks and groups; of patterns and kinds admins alone"},
	{Act: ChannelTest, Role: Admin, Scope: ScopeOperations, Does: "send a message to try a channel"},
	{Act: DutyRead, Role: ReadOnly, Scope: ScopeRead, Does: "see who is on duty"},
	{Act: DutyEdit, Role: Member, Own: Departments, Scope: ScopeAlerts, Does: "change duty rotas and overrides"},

	{Act: NodeRead, Role: ReadOnly, Scope: ScopeRead, Does: "look at nodes"},
	{Act: NodeEdit, Role: Admin, Scope: ScopeOperations, Does: "drain, resume and remove nodes"},
	{Act: ServiceRead, Role: ReadOnly, Scope: ScopeRead, Does: "look at services and masters"},
	{Act: ServiceEdit, Role: Admin, Scope: ScopeOperations, Does: "have a service run now"},
	{Act: DispatchPause, Role: Admin, Scope: ScopeOperations, Does: "pause and resume the placing of batches, of all, a group or a node"},
	{Act: DispatchLimit, Role: Admin, Scope: ScopeOperations, Does: "say how many batches may run at once"},
	{Act: BreakerEdit, Role: Admin, Scope: ScopeOperations, Does: "open and close circuit breakers of tasks and groups"},

	{Act: UserRead, Role: ReadOnly, Scope: ScopeRead, Does: "look at users, departments and account grants"},
	{Act: UserEdit, Role: Admin, Own: Lesser, Scope: ScopePeople, Does: "make, change and forget users and departments"},
	{Act: AccountEdit, Role: Admin, Scope: ScopePeople, Does: "say who may run jobs as which system account"},
	{Act: AppRead, Role: SuperAdmin, Scope: ScopePeople, Does: "look at apps"},
	{Act: AppEdit, Role: SuperAdmin, Scope: ScopePeople, Does: "make, change and forget apps, and change their keys"},
	{Act: WorkerKeyRead, Role: Admin, Scope: ScopeOperations, Does: "look at workers' keys"},
	{Act: WorkerKeyEdit, Role: Admin, Scope: ScopeOperations, Does: "make and end workers' keys"},

	{Act: LogInDo, Public: true, Does: "log in with a password"},
	{Act: LogOutDo, Role: ReadOnly, Scope: ScopePeople, LogIn: true, First: true, Does: "log out"},
	{Act: MeRead, Role: ReadOnly, Scope: ScopeRead, First: true, Does: "see who one is and what one may"},
	{Act: PasswordEdit, Role: ReadOnly, Scope: ScopePeople, LogIn: true, First: true, Does: "change one's own password"},
	{Act: TokenRead, Role: ReadOnly, Own: Self, Scope: ScopePeople, Does: "list tokens"},
	{Act: TokenMake, Role: ReadOnly, Scope: ScopePeople, LogIn: true, Does: "make a token of one's own"},
	{Act: TokenRevoke, Role: ReadOnly, Own: Self, Scope: ScopePeople, Does: "end tokens"},
}

var rules = func() map[Act]Rule {
	m := make(map[Act]Rule, len(Policy))
	for _, r := range Policy {
		if _, twice := m[r.Act]; twice {
			panic("auth: the act " + string(r.Act) + " stands twice in the policy")
		}
		m[r.Act] = r
	}
	return m
}()

// RuleOf gives an act's rule, if it has one.
func RuleOf(act Act) (Rule, bool) {
	r, ok := rules[act]
	return r, ok
}

// Needs says in words who may do it.
func (r Rule) Needs() string {
	if r.Public {
		return "Anybody may."
	}
	var ways []string
	if r.Role != "" {
		ways = append(ways, fmt.Sprintf("the role %s or a mightier one (an app's key: the scope %s)%s", r.Role, r.Scope, ownWords[r.Own]))
	}
	if r.LogIn {
		ways[0] = fmt.Sprintf("a log-in, with the role %s or a mightier one", r.Role)
	}
	if r.Worker {
		ways = append(ways, "a worker's key, for its own node")
	}
	if r.Job {
		ways = append(ways, "a job's own token, for its own attempt")
	}
	return "Needs " + strings.Join(ways, ", or ") + "."
}

var ownWords = map[Own]string{
	Seen:        "; with task_read department members see what is of their own department",
	Owned:       "; members for tasks of their own, by the setting task_edit",
	Asked:       "; members for tasks of their own, by the setting task_edit; apps where they are asked",
	Departments: "; members for their own department",
	Lesser:      "; nobody for a role mightier than his own",
	Self:        "; for what is one's own, admins for anybody's",
}

// Settings are what the policy asks of dic_data. A value that is none of those counts as the stricter one.
type Settings struct {
	TaskEdit       string // owner, department
	TaskRead       string // all, department
	CascadeForeign string // allow, refuse
}

// Principal is who acts: what the log of actions names. The zero one is nobody, and may only what is public.
type Principal struct {
	Kind       Kind
	Name       string
	Role       Role          // of a user or an app
	Department string        // of a user or an app: what it may change as a member
	Scopes     []Scope       // of an app: none is none. Of a user's token: none is all
	Node, Pool string        // of a worker
	Attempt    capri.Attempt // of a job
	Session    int64         // of a user who is logged in; 0: he came with a token
	Use        string        // of a session: Browser or Command
	OneTime    bool          // of a user who has to change his password first
	Settings   Settings      // as they are at this moment
}

// Object is what an act is on; zero where that is nothing in particular.
type Object struct {
	What       string // how an error names it: task dwd_orders, batch 17
	Owner      string // the user whose it is
	Department string // the owner's, or whose it is itself
	App        string // the app that made it
	Role       Role   // of people: the mightiest of what they have and shall have
	Node       string // of what is a worker's
}

// Reaches tells whether the principal may do the act on anything at all: by kind, role and scope. It answers
// capri.ErrForbidden, and nobody is asked who he is (IsNobody).
func (p Principal) Reaches(act Act) error {
	r, known := rules[act]
	switch {
	case known && r.Public:
		return nil
	case p.Kind == "":
		return errNobody
	case !known:
		return capri.Forbidden("nobody may %s: it is not in the policy", act)
	case p.Kind == Worker && r.Worker, p.Kind == Job && r.Job:
		return nil
	case p.Kind != User && p.Kind != App || r.Role == "":
		return capri.Forbidden("%s is a %s, and %s needs %s", p.Name, p.Kind, act, strings.TrimPrefix(strings.TrimSuffix(r.Needs(), "."), "Needs "))
	case p.OneTime && !r.First:
		return capri.Forbidden("%s has a one-time password, and has to change it first: capri user password", p.Name)
	case r.LogIn && p.Session == 0:
		return capri.Forbidden("%s has to be logged in for %s: neither tokens nor apps may (capri login)", p.Name, act)
	case !p.Role.May(r.Role):
		return capri.Forbidden("%s has the role %s, and %s needs %s", p.Name, p.Role, act, r.Role)
	case (p.Kind == App || len(p.Scopes) > 0) && !slices.Contains(p.Scopes, r.Scope) && !slices.Contains(p.Scopes, ScopeAll):
		return capri.Forbidden("the key of %s is not made for %s: it lacks the scope %s", p.Name, act, r.Scope)
	}
	return nil
}

// May decides: whether the principal may do an act on an object. capri.ErrForbidden says why not; capri.ErrNotFound hides
// what the principal may not even see, in the words for what does not exist.
func (p Principal) May(act Act, o Object) error {
	if err := p.Reaches(act); err != nil {
		return err
	}
	r := rules[act]
	if r.Public || p.Kind == Job {
		return nil
	}
	if p.Kind == Worker {
		if o.Node != "" && o.Node != p.Node {
			return capri.Forbidden("the key of worker %s is for its own node, and %s is of %s", p.Node, o.What, o.Node)
		}
		return nil
	}
	admin := p.Role.May(Admin)
	switch r.Own {
	case Seen, Owned, Asked:
		if admin {
			return nil
		}
		if !p.sees(o) {
			return capri.NotFound("there is no %s", o.What)
		}
		if r.Own == Seen || r.Own == Asked && p.Kind == App || p.owns(o) {
			return nil
		}
		return capri.Forbidden("%s may not %s %s: it is of %s, and %s", p.describe(), act, o.What, o.whose(), p.mine())
	case Departments:
		if admin || o.Department != "" && o.Department == p.Department {
			return nil
		}
		return capri.Forbidden("%s may not %s for %s: members may for their own department; ask an admin", p.describe(), act, o.What)
	case Lesser:
		if o.Role == "" || p.Role.May(o.Role) {
			return nil
		}
		return capri.Forbidden("%s has the role %s, and may not %s where the role %s is concerned", p.Name, p.Role, act, o.Role)
	case Self:
		if admin || p.Kind == User && o.Owner == p.Name {
			return nil
		}
		return capri.Forbidden("%s may not %s for others", p.describe(), act)
	}
	return nil
}

// MayAll decides on several objects: all or nothing. It names all that are refused.
func (p Principal) MayAll(act Act, objects []Object) error {
	var first error
	var refused []string
	for _, o := range objects {
		err := p.May(act, o)
		if errors.Is(err, capri.ErrNotFound) {
			return err // of what the caller may not see nothing is told, not even beside something else
		}
		if err != nil {
			refused = append(refused, o.What)
			if first == nil {
				first = err
			}
		}
	}
	if len(refused) > 1 {
		const few = 20
		more := ""
		if len(refused) > few {
			more = fmt.Sprintf(" and %d more", len(refused)-few)
		}
		return capri.Forbidden("%s; nothing was done, since the same goes for %s%s", first, strings.Join(refused[1:min(len(refused), few)], ", "), more)
	}
	return first
}

// MayCascade decides whether a cascade of the principal's reaches a task: what depends on one's own is run again with it,
// whosever it is, unless cascade_foreign says refuse.
func (p Principal) MayCascade(o Object) error {
	if p.Settings.CascadeForeign == "allow" || p.Everywhere(BatchRerun) {
		return p.Reaches(BatchRerun)
	}
	return p.May(BatchRerun, o)
}

// SeesAll tells that whose a task is does not count for whether the principal may see it, where his key is for looking.
func (p Principal) SeesAll() bool { return p.Role.May(Admin) || p.Settings.TaskRead == "all" }

// Everywhere tells that whose an object is does not count for the act, so that nobody need look.
func (p Principal) Everywhere(act Act) bool {
	if p.Reaches(act) != nil {
		return false
	}
	switch rules[act].Own {
	case Anyones:
		return true
	case Seen:
		return p.SeesAll()
	case Owned, Asked:
		return p.Role.May(Admin)
	default:
		return false
	}
}

// Seen is what lists of tasks and batches are narrowed to; nil: not at all.
func (p Principal) Seen(act Act) *store.Seen {
	if p.Everywhere(act) {
		return nil
	}
	v := &store.Seen{Owner: p.Name, Department: p.Department}
	if p.Kind == App {
		v.App = p.Name
	}
	return v
}

// SeenActions is what the list of actions is narrowed to; nil: not at all. An admin reads everything; whoever else what he
// did, and what was done to what is his or his department's.
func (p Principal) SeenActions() *store.SeenActions {
	if p.Role.May(Admin) {
		return nil
	}
	v := &store.SeenActions{Who: p.Name, Kind: string(p.Kind), Of: store.Seen{Owner: p.Name, Department: p.Department}}
	if p.Kind == App {
		v.Of.App = p.Name
	}
	return v
}

// TaskObject is a task, as May judges it.
func TaskObject(w store.Whose) Object {
	return Object{What: fmt.Sprintf("task %q", w.Task), Owner: w.Owner, Department: w.Department, App: w.App}
}

// sees: by task_read.
func (p Principal) sees(o Object) bool {
	return p.Settings.TaskRead == "all" || p.owner(o) || p.Department != "" && o.Department == p.Department
}

// owns: by task_edit.
func (p Principal) owns(o Object) bool {
	return p.owner(o) || p.Department != "" && o.Department == p.Department && p.Settings.TaskEdit == "department"
}

// owner: an app may bear the name of the user for whom it works, and what it has made itself is its own.
func (p Principal) owner(o Object) bool {
	return p.Name != "" && (o.Owner == p.Name || p.Kind == App && o.Owner == "" && o.App == p.Name)
}

func (p Principal) mine() string {
	if p.Settings.TaskEdit == "department" {
		return "members may change what is of their own department"
	}
	return "members may change what is their own"
}

func (p Principal) describe() string {
	if p.Department == "" {
		return fmt.Sprintf("%s (%s)", p.Name, p.Role)
	}
	return fmt.Sprintf("%s (%s of %s)", p.Name, p.Role, p.Department)
}

func (o Object) whose() string {
	switch {
	case o.Owner == "":
		return "nobody"
	case o.Department == "":
		return o.Owner
	}
	return o.Owner + " (" + o.Department + ")"
}
