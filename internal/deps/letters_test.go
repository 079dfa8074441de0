package deps

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A class of letters has hundreds of ranges, and an expression that repeats it 128 times holds them 128 times: megabytes in
// every process, before it has done anything. This was found twice by measuring idle memory.
func TestNoExpression_repeats_a_class_of_letters(t *testing.T) {
	repeats := regexp.MustCompile(`\\p\{?[A-Z][^\x60"]*\]\{\d+,\d*\}`)
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if found := repeats.Find(text); found != nil {
			t.Errorf("%s: %s: count the characters beside the expression (definition.Word)", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
