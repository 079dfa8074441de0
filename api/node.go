package api

import (
	"context"
	"net/http"

	"capri"
	"capri/api/wire"
	"capri/auth"
)

func (s *server) nodeOperations() {
	register(s, auth.NodeRead, http.MethodGet, "/nodes", "list-nodes", "Workers by name", s.nodes)
	register(s, auth.NodeEdit, http.MethodPost, "/nodes/{name}:drain", "drain-node", "Let a node finish what it has and take nothing new", s.named(s.Actions.DrainNode), status(http.StatusNoContent))
	register(s, auth.NodeEdit, http.MethodPost, "/nodes/{name}:resume", "resume-node", "Let a node take work again", s.named(s.Actions.ResumeNode), status(http.StatusNoContent))
	register(s, auth.NodeEdit, http.MethodDelete, "/nodes/{name}", "remove-node", "Forget a node that is gone for good", s.named(s.Actions.RemoveNode), status(http.StatusNoContent))
	register(s, auth.ServiceRead, http.MethodGet, "/services", "list-services", "The services, who leads them and how their last run went", s.services)
	register(s, auth.ServiceRead, http.MethodGet, "/masters", "list-masters", "Masters by name, also those that have stopped", s.masters)
	register(s, auth.ServiceEdit, http.MethodPost, "/services/{name}:trigger", "trigger-service", "Ask a service to run now", s.named(s.Actions.TriggerService), status(http.StatusNoContent))
	register(s, auth.DispatchPause, http.MethodPost, "/dispatch:pause", "pause-dispatch", "Stop the placing of batches", s.pause, status(http.StatusNoContent))
	register(s, auth.DispatchPause, http.MethodPost, "/dispatch:resume", "resume-dispatch", "Place batches again", s.resume, status(http.StatusNoContent))
}

// named makes a handler of an action on something that has a name.
func (s *server) named(do func(ctx context.Context, who, name string) error) func(context.Context, *nameInput) (*none, error) {
	return func(ctx context.Context, in *nameInput) (*none, error) {
		return nil, do(ctx, who(ctx), in.Name)
	}
}

func (s *server) nodes(ctx context.Context, _ *none) (*body[[]wire.Node], error) {
	rows, err := s.Store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Node, len(rows))
	for i := range rows {
		out[i] = wire.NodeOf(&rows[i], s.Zone)
	}
	return list(out), nil
}

func (s *server) pause(ctx context.Context, in *struct{ Body wire.Pause }) (*none, error) {
	var until capri.Instant
	if in.Body.Until != "" {
		var err error
		if until, err = s.instant("until", in.Body.Until); err != nil {
			return nil, err
		}
	}
	return nil, s.Actions.PauseDispatch(ctx, who(ctx), in.Body.Reason, until)
}

func (s *server) resume(ctx context.Context, _ *none) (*none, error) {
	return nil, s.Actions.ResumeDispatch(ctx, who(ctx))
}
