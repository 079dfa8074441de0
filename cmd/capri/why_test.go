package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"capri/api/wire"
)

func TestCauses_that_differ_only_in_what_they_say_are_shown_together(t *testing.T) {
	path := func(detail, owner string) wire.Cause { return wire.Cause{Kind: "path", Detail: detail, Owner: owner} }
	held := wire.Cause{Kind: "held", Owner: "alice"}
	got := alikeCauses([]wire.Cause{held, path("00", "alice"), path("01", "alice"), path("02", "bob"), held})
	assert.Equal(t, [][]wire.Cause{{held}, {path("00", "alice"), path("01", "alice")}, {path("02", "bob")}, {held}}, got)
	assert.Empty(t, alikeCauses(nil))
}
