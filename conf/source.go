package conf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"capri"
)

// setting is one key's text as one source gave it. Text, not a typed value: YAML reads the password 0123 as
// the number 83.
type setting struct {
	key, text, where string
}

// envPrefix begins the variables that are ours.
const envPrefix = "CAPRI_"

// EnvName gives the variable that sets a key: CAPRI_DATABASE_DSN for database.dsn.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// fromEnvironment picks the variables that name a key. Others are left alone even if they begin with CAPRI_:
// CAPRI_TOKEN is the client's, and a job's environment is full of them (CAPRI_TASK, CAPRI_ATTEMPT …).
func fromEnvironment(environ []string) []setting {
	byName := map[string]string{}
	for _, f := range fieldsOf(&Config{}) {
		byName[EnvName(f.key)] = f.key
	}
	var list []setting
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if key, ok := byName[name]; ok {
			list = append(list, setting{key: key, text: value, where: "environment " + name})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].key < list[j].key })
	return list
}

// maxFile is far above any configuration; it keeps --config /dev/zero from eating the machine.
const maxFile = 1 << 20

// readFile gives the settings of a file. They come even with an error, so that Load can tell the rest, too.
func readFile(file string, explicit bool) ([]setting, capri.FieldErrors) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) && !explicit {
		return nil, nil
	}
	if err != nil {
		return nil, fileError(file, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fileError(file, err)
	}
	if len(data) > maxFile {
		return nil, fileError(file, fmt.Errorf("it is larger than %d KB", maxFile>>10))
	}
	return parse(filepath.ToSlash(file), data)
}

func fileError(file string, err error) capri.FieldErrors {
	return capri.FieldErrors{{Field: "--config", Value: filepath.ToSlash(file), Want: "a file that can be read: " + reason(err)}}
}

// yamlLine finds the line in yaml's own messages ("yaml: line 3: mapping values are not allowed here").
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse flattens the file into dotted keys.
func parse(name string, data []byte) ([]setting, capri.FieldErrors) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		where := name
		if m := yamlLine.FindStringSubmatch(err.Error()); len(m) == 2 && m[1] != "" {
			where += ":" + m[1]
		}
		return nil, capri.FieldErrors{{
			Field: "YAML", Value: yamlLine.ReplaceAllString(err.Error(), ""), Where: where,
			Want: "lines such as `listen: 127.0.0.1:8680`, nested by spaces, not tabs",
		}}
	}
	if len(doc.Content) == 0 {
		return nil, nil // an empty file, or nothing but comments
	}
	p := parser{name: name, seen: map[string]int{}}
	p.walk("", doc.Content[0])
	return p.settings, p.wrong
}

type parser struct {
	name     string
	seen     map[string]int // key → line
	settings []setting
	wrong    capri.FieldErrors
}

func (p *parser) fail(n *yaml.Node, key, value, want string) {
	p.wrong = append(p.wrong, &capri.FieldError{Field: key, Value: value, Want: want, Where: fmt.Sprintf("%s:%d", p.name, n.Line)})
}

func (p *parser) walk(key string, n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		// Nothing here is worth sharing, and refusing it spares us every trick that aliases allow.
		p.fail(n, key, "*"+n.Value, "the value itself; aliases are not read here")
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		// "redis:" with all its lines commented out: nothing is said.
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			path := strings.TrimPrefix(key+"."+name.Value, ".")
			if line, twice := p.seen[path]; twice {
				p.fail(name, path, "", fmt.Sprintf("to be there once; it is on line %d already", line))
				continue
			}
			p.seen[path] = name.Line
			p.walk(path, value)
		}
	case key == "":
		p.fail(n, "file", n.Value, "keys and values, such as `listen: 127.0.0.1:8680`")
	case n.Kind == yaml.SequenceNode:
		texts := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				p.fail(item, key, "", "a plain list of words")
				return
			}
			texts = append(texts, item.Value)
		}
		p.settings = append(p.settings, setting{key: key, text: strings.Join(texts, ","), where: fmt.Sprintf("%s:%d", p.name, n.Line)})
	default:
		p.settings = append(p.settings, setting{key: key, text: n.Value, where: fmt.Sprintf("%s:%d", p.name, n.Line)})
	}
}
