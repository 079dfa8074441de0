package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri/internal/testenv"
)

func TestEach_kind_of_alert_that_the_code_raises_has_words_in_each_language(t *testing.T) {
	raised := raisedKinds(t, testenv.Root(t))
	require.Greater(t, len(raised), 20, "the source was not understood")
	for _, known := range []string{"batch_failed", "outage_caught_up" /* a constant */, "clock_off" /* of the monitor's table */} {
		require.Contains(t, raised, known, "the source was not understood")
	}
	for kind, where := range raised {
		for _, name := range languageNames() {
			if kinds[name][kind] == "" {
				t.Errorf("%s raises alerts of the kind %q, for which language %s has no words: add them to kinds in alerting/words/language.go", where, kind, name)
			}
		}
	}
}

func TestLanguages_have_words_for_the_same_kinds(t *testing.T) {
	for _, name := range languageNames() {
		require.Equal(t, slices.Sorted(maps.Keys(kinds["en"])), slices.Sorted(maps.Keys(kinds[name])))
	}
}

// raisedKinds reads the module's source: the field Kind of each capri.Alert. It is a literal, a constant, or the first
// column of the monitor's table of checks.
func raisedKinds(t *testing.T, root string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	constants := map[string]string{} // by name; the module has none twice with different texts that matter here
	tables := map[string][]string{}  // by package folder: the first column of its variable checks
	type use struct {
		kind ast.Expr
		dir  string
	} // where an alert is made
	var uses []use
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "tools", "node_modules"}, d.Name())) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i >= len(n.Values) {
						continue
					}
					if text, ok := literal(n.Values[i]); ok {
						constants[name.Name] = text
					}
					if table, ok := n.Values[i].(*ast.CompositeLit); ok && name.Name == "checks" {
						for _, row := range table.Elts {
							if row, ok := row.(*ast.CompositeLit); ok && len(row.Elts) > 0 {
								if text, ok := literal(row.Elts[0]); ok {
									tables[filepath.Dir(file)] = append(tables[filepath.Dir(file)], text)
								}
							}
						}
					}
				}
			case *ast.CompositeLit:
				alerts := []ast.Expr{n}
				switch of := n.Type.(type) {
				case *ast.ArrayType: // []capri.Alert{{Kind: …}}
					if !isAlert(of.Elt) {
						return true
					}
					alerts = n.Elts
				default:
					if !isAlert(n.Type) {
						return true
					}
				}
				for _, a := range alerts {
					a, ok := a.(*ast.CompositeLit)
					if !ok || a.Type != nil && a != n {
						continue // it is met by itself
					}
					for _, e := range a.Elts {
						pair, ok := e.(*ast.KeyValueExpr)
						require.True(t, ok, "%s: an alert is written with the names of its fields", set.Position(e.Pos()))
						if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Kind" {
							uses = append(uses, use{pair.Value, filepath.Dir(file)})
						}
					}
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)

	raised := map[string]string{}
	for _, u := range uses {
		where := strings.TrimPrefix(set.Position(u.kind.Pos()).String(), root+string(filepath.Separator))
		name := ""
		switch e := u.kind.(type) {
		case *ast.BasicLit:
			text, _ := literal(e)
			raised[text] = where
			continue
		case *ast.Ident:
			name = e.Name
		case *ast.SelectorExpr:
			name = e.Sel.Name
		}
		text, isConstant := constants[name]
		switch {
		case name == "kind" && len(tables[u.dir]) > 0:
			for _, text := range tables[u.dir] {
				raised[text] = where
			}
		case isConstant:
			raised[text] = where
		default:
			t.Errorf("%s: what kind of alert is this? Name it by a literal or a constant, so that this test can tell whether there are words for it", where)
		}
	}
	return raised
}

// isAlert leaves out what is called so elsewhere, such as the alert that goes over HTTP.
func isAlert(of ast.Expr) bool {
	selector, ok := of.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Alert" {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && pkg.Name == "capri"
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// docs/alerts.md says of each kind whose it is, at which level, and what proves it.
func TestThe_table_of_alerts_has_each_kind_and_names_tests_that_speak_of_it(t *testing.T) {
	root := testenv.Root(t)
	raised := raisedKinds(t, root)
	text, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	require.NoError(t, err)
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		require.Len(t, cells, 7, "%s", line)
		for i, cell := range cells {
			require.NotEmpty(t, strings.TrimSpace(cell), "column %d of %s", i+1, line)
		}
		test := quoted.FindStringSubmatch(cells[6])
		require.NotNil(t, test, "%s names no test", line)
		folder, name, _ := strings.Cut(test[1], ".")
		proof := testText(t, filepath.Join(root, folder), name)
		for _, kind := range quoted.FindAllStringSubmatch(cells[0], -1) {
			kind := kind[1]
			if rows[kind] {
				t.Errorf("docs/alerts.md has %s twice", kind)
			}
			rows[kind] = true
			if raised[kind] == "" {
				t.Errorf("docs/alerts.md has %s, which nothing raises: take the row away", kind)
			}
			if proof == "" {
				t.Errorf("docs/alerts.md: there is no test %s for %s", test[1], kind)
			} else if !strings.Contains(proof, kind) {
				t.Errorf("docs/alerts.md: test %s does not speak of %s", test[1], kind)
			}
		}
	}
	for kind, where := range raised {
		if !rows[kind] {
			t.Errorf("%s raises %s, which has no row in docs/alerts.md", where, kind)
		}
	}
}

// testText is the source of a test with its comment; empty: there is none in the folder.
func testText(t *testing.T, folder, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != name {
				continue
			}
			from := fn.Pos()
			if fn.Doc != nil {
				from = fn.Doc.Pos()
			}
			return string(text[set.Position(from).Offset:set.Position(fn.End()).Offset])
		}
	}
	return ""
}
