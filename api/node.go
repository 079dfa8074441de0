package api

import (
	"context"
	"net/http"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

func (s *server) nodeOperations() {
	register(s, auth.NodeRead, http.MethodGet, "/nodes", "list-nodes", "Workers by name", s.nodes)
	register(s, auth.NodeEdit, http.MethodPost, "/nodes/{name}:drain", "drain-node", "Let a node finish what it has and take nothing new", s.reasoned(s.Actions.DrainNode), status(http.StatusNoContent))
	register(s, auth.NodeEdit, http.MethodPost, "/nodes/{name}:resume", "resume-node", "Let a node take work again", s.reasoned(s.Actions.ResumeNode), status(http.StatusNoContent))
	register(s, auth.NodeEdit, http.MethodDelete, "/nodes/{name}", "remove-node", "Forget a node that is gone for good", s.named(s.Actions.RemoveNode), status(http.StatusNoContent))
	register(s, auth.ServiceRead, http.MethodGet, "/services", "list-services", "The services, who leads them and how their last run went", s.services)
	register(s, auth.ServiceRead, http.MethodGet, "/services/{name}/runs", "list-service-runs", "What a service did, newest first: turns that had nothing to do are not kept", s.serviceRuns)
	register(s, auth.ServiceRead, http.MethodGet, "/masters", "list-masters", "Masters by name, also those that have stopped", s.masters)
	register(s, auth.ServiceEdit, http.MethodPost, "/services/{name}:trigger", "trigger-service", "Ask a service to run now", s.named(s.Actions.TriggerService), status(http.StatusNoContent))
	register(s, auth.ServiceRead, http.MethodGet, "/dispatch", "show-dispatch", "What keeps batches from being placed: pauses, open breakers, max_running", s.dispatch)
	register(s, auth.DispatchPause, http.MethodPost, "/dispatch:pause", "pause-dispatch", "Stop the placing of batches: of all, of a group or on a node", s.pause, status(http.StatusNoContent))
	register(s, auth.DispatchPause, http.MethodPost, "/dispatch:resume", "resume-dispatch", "Place batches again", s.resume, status(http.StatusNoContent))
	register(s, auth.DispatchLimit, http.MethodPost, "/dispatch:limit", "limit-dispatch", "Say how many batches may be assigned or run at once", s.limitRunning, status(http.StatusNoContent))
	register(s, auth.BreakerEdit, http.MethodPost, "/breakers:open", "open-breaker", "Open the circuit breaker of a task or a group: no batch of it is placed", s.breaker(s.Actions.Stop), status(http.StatusNoContent))
	register(s, auth.BreakerEdit, http.MethodPost, "/breakers:close", "close-breaker", "Close a circuit breaker", s.breaker(s.Actions.EndStop), status(http.StatusNoContent))
}

// named makes a handler of an action on something that has a name.
func (s *server) named(do func(ctx context.Context, who, name string) error) func(context.Context, *nameInput) (*none, error) {
	return func(ctx context.Context, in *nameInput) (*none, error) {
		return nil, do(ctx, who(ctx), in.Name)
	}
}

func (s *server) nodes(ctx context.Context, _ *none) (*body[[]wire.Node], error) {
	rows, err := s.Store.Nodes(ctx)
	return listOf(rows, err, func(n capri.Node) wire.Node { return wire.NodeOf(&n, s.Zone) })
}

// reasoned is named for actions that somebody may give a reason for.
func (s *server) reasoned(do func(ctx context.Context, who, name, reason string) error) func(context.Context, *reasonInput) (*none, error) {
	return func(ctx context.Context, in *reasonInput) (*none, error) {
		return nil, do(ctx, who(ctx), in.Name, in.reason())
	}
}

type reasonInput struct {
	Name string `path:"name" maxLength:"200"`
	Body *wire.Reason
}

func (in *reasonInput) reason() string { return reasonOf(in.Body) }

// reasonOf is empty where no body came.
func reasonOf(r *wire.Reason) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// dispatch tells what people have said about it.
func (s *server) dispatch(ctx context.Context, _ *none) (*body[wire.Dispatch], error) {
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	d, err := s.Store.DispatchState(ctx)
	if err != nil {
		return nil, err
	}
	stops, err := s.stops(ctx, d.StopsAt(now))
	if err != nil {
		return nil, err
	}
	return answer(wire.Dispatch{MaxRunning: d.MaxRunning, Stops: stops}), nil
}

// stops leaves out those of tasks that the caller may not see.
func (s *server) stops(ctx context.Context, stops []store.Stop) ([]wire.Stop, error) {
	p := auth.From(ctx)
	all := p.Everywhere(auth.TaskRead)
	var tasks []string
	for _, x := range stops {
		if x.Scope == store.OfTask && !all {
			tasks = append(tasks, x.Name)
		}
	}
	whose, err := s.Store.WhoseTasks(ctx, tasks)
	out := []wire.Stop{}
	for _, x := range stops {
		w, there := whose[x.Name]
		if all || x.Scope != store.OfTask || there && p.May(auth.TaskRead, auth.TaskObject(w)) == nil {
			out = append(out, s.stop(x))
		}
	}
	return out, err
}

func (s *server) stop(x store.Stop) wire.Stop {
	return wire.Stop{Kind: x.Kind.String(), Scope: x.Scope.String(), Name: x.Name, Reason: x.Reason, By: x.By, Since: wire.At(x.Since, s.Zone), Until: wire.At(x.Until, s.Zone)}
}

func (s *server) pause(ctx context.Context, in *struct{ Body wire.Pause }) (*none, error) {
	x, err := s.stopOf(store.Pause, wire.StopOf{Group: in.Body.Group, Node: in.Body.Node}, in.Body.Reason, in.Body.Until)
	if err != nil {
		return nil, err
	}
	return nil, s.Actions.Stop(ctx, who(ctx), x)
}

func (s *server) resume(ctx context.Context, in *struct{ Body *wire.Resume }) (*none, error) {
	var r wire.Resume
	if in.Body != nil {
		r = *in.Body
	}
	x, err := s.stopOf(store.Pause, wire.StopOf{Group: r.Group, Node: r.Node}, r.Reason, "")
	if err != nil {
		return nil, err
	}
	return nil, s.Actions.EndStop(ctx, who(ctx), x)
}

func (s *server) limitRunning(ctx context.Context, in *struct{ Body wire.DispatchLimit }) (*none, error) {
	return nil, s.Actions.LimitRunning(ctx, who(ctx), in.Body.MaxRunning, in.Body.Reason)
}

func (s *server) breaker(do func(ctx context.Context, who string, x store.Stop) error) func(context.Context, *struct{ Body wire.Breaker }) (*none, error) {
	return func(ctx context.Context, in *struct{ Body wire.Breaker }) (*none, error) {
		x, err := s.stopOf(store.Breaker, wire.StopOf{Task: in.Body.Task, Group: in.Body.Group}, in.Body.Reason, in.Body.Until)
		if err != nil {
			return nil, err
		}
		if x.Scope == store.OfAll {
			return nil, capri.Invalid("task", "", "a task or a group (dispatch:pause stops everything)")
		}
		return nil, do(ctx, who(ctx), x)
	}
}

// stopOf reads of what a pause or breaker is, and until when.
func (s *server) stopOf(kind store.StopKind, of wire.StopOf, reason, until string) (store.Stop, error) {
	x := store.Stop{Kind: kind, Reason: reason}
	for _, one := range []struct {
		scope       store.StopScope
		field, name string
	}{{store.OfGroup, "group", of.Group}, {store.OfNode, "node", of.Node}, {store.OfTask, "task", of.Task}} {
		switch {
		case one.name == "":
		case x.Scope != store.OfAll:
			return x, capri.Invalid(one.field, one.name, "one thing at a time: "+x.Scope.String()+" "+x.Name+" is named already")
		default:
			x.Scope, x.Name = one.scope, one.name
		}
	}
	var err error
	if until != "" {
		x.Until, err = s.instant("until", until)
	}
	return x, err
}
