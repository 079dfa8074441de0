package api_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
)

func TestTheDocsPage_works_without_the_internet_and_under_a_strict_policy(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	all := ""
	for path, kind := range map[string]string{"/docs": "text/html; charset=utf-8", "/docs/docs.css": "text/css; charset=utf-8", "/docs/docs.js": "text/javascript; charset=utf-8"} {
		rec := r.ask("", "GET", path, "")
		require.Equal(t, 200, rec.Code, path)
		assert.Equal(t, kind, rec.Header().Get("Content-Type"))
		policy := rec.Header().Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'; script-src 'self'")
		assert.NotContains(t, policy, "unsafe")
		all += rec.Body.String()
	}
	assert.NotRegexp(t, regexp.MustCompile(`https?://|//[a-z0-9-]+\.[a-z]`), all, "nothing from elsewhere")
	assert.NotRegexp(t, regexp.MustCompile(`innerHTML|eval\(|new Function|insertAdjacentHTML| on[a-z]+="|style="`), all, "nothing that a policy would have to allow, or that could make markup of text")
	for _, m := range regexp.MustCompile(`(?:href|src)="(/[^"#]+)"`).FindAllStringSubmatch(all, -1) {
		assert.Equal(t, 200, r.ask("", "GET", m[1], "").Code, m[1])
	}
}
