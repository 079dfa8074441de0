package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/api/wire"
)

func TestAnEvent_is_a_line_for_people_and_for_programs(t *testing.T) {
	for _, c := range []struct{ format, kind, data, want string }{
		{"table", wire.EventBatch, `{"at":"2026-11-20T09:30:00Z","batch_id":7,"task":"orders","batch_no":"20261119","state":"finished","finish_state":"failed","node":"n1","who":"n1","why":"exit\ncode 1"}`,
			"2026-11-20 09:30:00  batch 7  orders 20261119  failed on n1  (n1: exit code 1)"},
		{"table", wire.EventNode, `{"host":"n1","state":"short","short_of":"its disk has 12 MB left"}`, "node n1  short its disk has 12 MB left"},
		{"table", wire.EventService, `{"service":"dispatch","leader":"","epoch":3,"paused":true,"reason":"upgrade"}`, "service dispatch  led by nobody (epoch 3), paused: upgrade"},
		{"table", wire.EventReset, `{}`, "more has happened than can be told: look at the lists"},
		{"json", wire.EventNode, `{"host":"n1"}`, `{"id":"5","kind":"node","data":{"host":"n1"}}`},
	} {
		line, err := eventLine(c.format, wire.StreamEvent{ID: "5", Kind: c.kind, Data: []byte(c.data)})
		require.NoError(t, err)
		assert.Equal(t, c.want, line)
	}
}
