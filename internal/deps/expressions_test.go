package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp/syntax"
	"strconv"
	"strings"
	"testing"
)

// An expression is compiled when the process starts, and one that counts holds what it counts as often: a class of letters, which
// has hundreds of ranges, or of plain characters, 128 times. Found three times by measuring idle memory.
func TestNoExpression_is_large(t *testing.T) {
	const most = 16 << 10
	root := os.DirFS("../..")
	found := 0
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil || !strings.Contains(string(text), "regexp.MustCompile(") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "MustCompile" {
				return true
			}
			found++
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: an expression that is put together cannot be looked at: write it out", path)
				return true
			}
			expression, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if n := size(t, expression); n > most {
				t.Errorf("%s: %s takes some %d KB in every process: count beside the expression, or do without (capri.IsWord, capri.IsName)", path, expression, n>>10)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("only %d expressions found: this test looks at nothing any more", found)
	}
}

// size is about what an expression's program takes, twice: package regexp keeps a second one where it can.
func size(t *testing.T, expression string) (bytes int) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range program.Inst {
		bytes += 2 * (40 + 4*len(in.Rune))
	}
	return bytes
}
