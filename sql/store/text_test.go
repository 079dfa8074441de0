package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// One SQL text serves MySQL, MariaDB and SQLite. These are words that one of them refuses or, worse, understands
// differently; what they are for is said by package dialect.
var banned = []struct {
	text *regexp.Regexp
	why  string
}{
	{regexp.MustCompile(`(?i)\bRETURNING\b`), "MySQL has none; reserve ids"},
	{regexp.MustCompile(`\|\|`), "MySQL reads it as OR; use concat"},
	{regexp.MustCompile(`->`), "MariaDB refuses it; use json_extract"},
	{regexp.MustCompile(`(?i)\b(NOW|CURRENT_TIMESTAMP|UNIX_TIMESTAMP)\s*\(`), "SQLite has none, and tests set the time; use Tx.Now"},
	{regexp.MustCompile(`(?i)\bINSERT\s+(OR\s+)?(IGNORE|REPLACE)\b|\bREPLACE\s+INTO\b`), "loses and shortens rows in silence; insert, and look at the duplicate"},
	{regexp.MustCompile(`(?i)\bON\s+(DUPLICATE|CONFLICT)\b`), "use dialect.Upsert"},
	{regexp.MustCompile(`(?i)\bFOR\s+(UPDATE|SHARE)\b|\bLOCK\s+IN\s+SHARE\b`), "use dialect.ForUpdate and ForShare"},
	{regexp.MustCompile(`(?i)\b(GREATEST|IIF|IFNULL)\s*\(|<=>`), "not on all of them; use CASE and COALESCE"},
}

func TestText_has_no_SQL_that_only_one_database_understands(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, f.Name(), nil, 0) // without comments: they may name what the code must not use
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			seen++
			for _, b := range banned {
				if word := b.text.FindString(lit.Value); word != "" {
					t.Errorf("%s: %q: %s", set.Position(lit.Pos()), word, b.why)
				}
			}
			return true
		})
	}
	if seen < 100 {
		t.Errorf("looked at %d strings only", seen)
	}
}
