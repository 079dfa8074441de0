package nearest

import "testing"

func TestWord(t *testing.T) {
	fields := []string{"name", "title", "priority", "parents", "limits", "inputs", "outputs"}
	for _, c := range []struct{ sentence, word, want string }{
		{"one letter too many", "prioritty", "priority"},
		{"one letter missing", "parnts", "parents"},
		{"two letters swapped", "naem", "name"},
		{"the earlier of two equally near words", "nputs", "inputs"},
		{"nothing that looks like it", "frobnicate", ""},
		{"a short word is not any other short word", "abc", ""},
		{"letters beyond ASCII count once", "prioritä", "priority"},
		{"nothing at all", "", ""},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			if got := Word(c.word, fields); got != c.want {
				t.Errorf("Word(%q) = %q, want %q", c.word, got, c.want)
			}
		})
	}
}
