package api_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// items reads the first page of a list.
func items[T any](r *rig, path string) []T {
	r.t.Helper()
	var p wire.Page[T]
	r.read(&p, auth.ReadOnly, path)
	return p.Items
}

func (r *rig) alert(n int) {
	r.t.Helper()
	require.NoError(r.t, r.Store.Write(r.Ctx, "test", "test", func(tx *store.Tx) error {
		return tx.Alert(capri.Alert{Key: fmt.Sprint("key ", n), Level: capri.Important, Kind: "raised", Title: fmt.Sprint(n)})
	}))
}

func TestPages_give_each_row_once_though_rows_come_meanwhile(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	for n := range 7 {
		r.alert(n)
	}
	var titles []string
	path := "/alerts?limit=3"
	for n := 7; path != ""; n++ {
		rec := r.ask(auth.ReadOnly, "GET", wire.Prefix+path, "")
		var p wire.Page[wire.Alert]
		r.read(&p, auth.ReadOnly, path)
		for _, a := range p.Items {
			titles = append(titles, a.Title)
		}
		link := rec.Header().Get("Link")
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"+wire.Prefix), `>; rel="next"`)
		assert.Equal(t, p.Next == "", link == "")
		if p.Next != "" {
			assert.Contains(t, path, "cursor="+p.Next)
			assert.Contains(t, path, "limit=3")
		}
		r.alert(n)
	}
	assert.Equal(t, []string{"6", "5", "4", "3", "2", "1", "0"}, titles)
}

func TestACursor_is_good_for_its_list_and_filters_alone(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	for n := range 3 {
		r.alert(n)
	}
	var p wire.Page[wire.Alert]
	r.read(&p, auth.ReadOnly, "/alerts?limit=1")
	r.read(&p, auth.ReadOnly, "/alerts?limit=1000&cursor="+p.Next)
	require.Len(t, p.Items, 2, "pages may change their size")
	require.Empty(t, p.Next)

	r.read(&p, auth.ReadOnly, "/alerts?limit=1")
	raw, err := base64.RawURLEncoding.DecodeString(p.Next)
	require.NoError(t, err)
	raw[len(raw)-1]++
	for _, path := range []string{"/incidents?cursor=" + p.Next, "/incidents?all=true&cursor=" + p.Next, "/alerts?cursor=" + p.Next + "A", "/alerts?cursor=" + p.Next[1:], "/alerts?cursor=x",
		"/alerts?cursor=" + base64.RawURLEncoding.EncodeToString(raw), "/alerts?cursor=" + url.QueryEscape("' OR 1=1 --\x00"), "/alerts?cursor=" + strings.Repeat("A", 3000)} {
		rec := r.ask(auth.ReadOnly, "GET", wire.Prefix+path, "")
		require.Equal(t, 422, rec.Code, path)
		assert.Equal(t, "cursor", r.problem(rec).Errors[0].Field)
	}
	assert.Equal(t, 422, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/alerts?limit=1001", "").Code)
}

func TestTasksAndTheirVersions_come_in_pages(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		for priority := range 4 {
			r.Apply(strings.ReplaceAll(some, "{name: day,", fmt.Sprintf("{name: day, priority: %d,", priority+2)))
		}
		var names []string
		var p wire.Page[wire.Task]
		for more := true; more; more = p.Next != "" {
			r.read(&p, auth.ReadOnly, "/tasks?limit=2&cursor="+p.Next)
			require.LessOrEqual(t, len(p.Items), 2)
			for _, task := range p.Items {
				names = append(names, task.Name)
			}
		}
		assert.Equal(t, []string{"child", "day", "tick"}, names)

		whole := items[wire.TaskVersion](r, "/tasks/day/history")
		require.Len(t, whole, 5)
		var got []wire.TaskVersion
		var h wire.Page[wire.TaskVersion]
		for more := true; more; more = h.Next != "" {
			h.Items = nil
			r.read(&h, auth.ReadOnly, "/tasks/day/history?limit=2&cursor="+h.Next)
			got = append(got, h.Items...)
		}
		assert.Equal(t, whole, got, "what the last of a page changed is said, too")
	})
}
