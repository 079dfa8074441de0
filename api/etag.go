package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"capri"
	"capri/action"
	"capri/api/wire"
	"capri/definition"
	"capri/sql/store"
)

// A definition's ETag is "name-version.sum": the version is what an edit is held against (If-Match), the sum, of all that is
// shown, what a reader's copy is (If-None-Match). An edit that names a version which is no longer the newest is refused with
// 412 and what was changed since. An edit of several tasks names one ETag for each of those that matter to it.

type taskOutput struct {
	Status       int
	ETag         string `header:"ETag"`
	CacheControl string `header:"Cache-Control"`
	Body         wire.Task
}

// tagged answers with a task and its ETag; a reader who has it gets 304.
func tagged(t wire.Task, ifNoneMatch string) (*taskOutput, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	out := &taskOutput{Status: http.StatusOK, ETag: `"` + t.Name + "-" + strconv.Itoa(t.Version) + "." + hex.EncodeToString(sum[:4]) + `"`, CacheControl: "private, no-cache", Body: t}
	for tag := range strings.SplitSeq(ifNoneMatch, ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == out.ETag || tag == "*" {
			out.Status = http.StatusNotModified
		}
	}
	return out, nil
}

// IfMatch is embedded by the inputs of edits.
type IfMatch struct {
	Match string `header:"If-Match" maxLength:"20000" doc:"ETags of the tasks as they were read, separated by commas: the edit is refused where one has changed since" example:"\"dwd_orders-7.1a2b3c4d\""`
	tags  map[string]int
}

// Resolve is called by huma when the request has been read.
func (m *IfMatch) Resolve(huma.Context) []error {
	if m.Match == "" || m.Match == "*" {
		return nil
	}
	m.tags = map[string]int{}
	for tag := range strings.SplitSeq(m.Match, ",") {
		text := strings.TrimSpace(tag)
		inside := strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
		dash, dot := strings.LastIndexByte(inside, '-'), strings.LastIndexByte(inside, '.')
		version := 0
		if 0 < dash && dash < dot {
			version, _ = strconv.Atoi(inside[dash+1 : dot])
		}
		if len(text) != len(inside)+2 || version < 1 {
			return []error{&huma.ErrorDetail{Location: "If-Match", Value: text, Message: `the ETag of a task, such as "dwd_orders-7.1a2b3c4d"`}}
		}
		m.tags[inside[:dash]] = version
	}
	return nil
}

// expecting has an edit refused where a task has changed.
func (m *IfMatch) expecting(ctx context.Context) context.Context {
	return action.Expecting(ctx, m.tags)
}

// stale says what was changed since the version that an edit was made of.
func (s *server) stale(ctx context.Context, e *action.StaleError) *problem {
	p := newProblem(http.StatusPreconditionFailed, e.Error())
	p.Names = []string{e.Task}
	found, err := s.Store.WhoseTasks(ctx, []string{e.Task})
	if err != nil || found[e.Task].TaskID == 0 {
		return p
	}
	versions, err := s.Store.TaskHistory(ctx, found[e.Task].TaskID, 0, 0)
	if err != nil || len(versions) == 0 {
		return p
	}
	was := slices.IndexFunc(versions, func(v store.TaskChange) bool { return v.Version == e.Expected })
	var before *capri.Spec
	if was >= 0 {
		before = &versions[was].Spec
	}
	p.Changes = changes(definition.Diff(before, &versions[0].Spec))
	return p
}
