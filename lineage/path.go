package lineage

import (
	"strings"

	"capri"
)

// CanonicalPath is the one spelling under which paths are compared: scheme and authority in lower case, no
// doubled or trailing slash. A path with a segment . or .. is refused, because what it means depends on links
// that only the file system knows, and so is one with control characters, which no flag file would show.
func CanonicalPath(path string) (string, error) {
	if path == "" {
		return "", capri.Invalid("path", path, "a path such as /warehouse/orders/${yyyyMMdd}")
	}
	for i := range len(path) {
		if path[i] < ' ' || path[i] == 0x7f {
			return "", capri.Invalid("path", path, "a path without control characters")
		}
	}
	head, rest := splitAuthority(path)
	if dotted(rest) {
		return "", capri.Invalid("path", path, "a path without . and .. segments")
	}
	if isCanonical(head, rest) {
		return path, nil // nearly always: nothing is copied
	}

	var b strings.Builder
	b.Grow(len(path) + 3)
	if head != "" {
		scheme, authority, _ := strings.Cut(head, ":")
		b.WriteString(strings.ToLower(scheme) + "://") // file:/x is file:///x
		b.WriteString(strings.ToLower(strings.TrimPrefix(authority, "//")))
	}
	for i, segment := range strings.Split(rest, "/") {
		if segment != "" {
			if i > 0 {
				b.WriteByte('/')
			}
			b.WriteString(segment)
		}
	}
	// The root is the one path that ends with its slash.
	if strings.Trim(rest, "/") == "" {
		b.WriteByte('/')
	}
	return b.String(), nil
}

// splitAuthority parts "hdfs://nn:8020/a" into "hdfs://nn:8020" and "/a". A path without a scheme has no head.
func splitAuthority(path string) (head, rest string) {
	colon := strings.IndexByte(path, ':')
	if colon < 1 || colon+1 >= len(path) || path[colon+1] != '/' {
		return "", path
	}
	for i := range colon {
		c := path[i] | 0x20
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(path[i]))) {
			return "", path
		}
	}
	if !strings.HasPrefix(path[colon+1:], "//") {
		return path[:colon+1], path[colon+1:]
	}
	if slash := strings.IndexByte(path[colon+3:], '/'); slash >= 0 {
		return path[:colon+3+slash], path[colon+3+slash:]
	}
	return path, ""
}

func isCanonical(head, rest string) bool {
	if head != "" && (!strings.Contains(head, "://") || rest == "") {
		return false
	}
	for i := range len(head) {
		if head[i] >= 'A' && head[i] <= 'Z' {
			return false
		}
	}
	return !strings.Contains(rest, "//") && (len(rest) == 1 || !strings.HasSuffix(rest, "/"))
}

func dotted(rest string) bool {
	for at := 0; at < len(rest); {
		i := strings.IndexByte(rest[at:], '.')
		if i < 0 {
			return false
		}
		at += i
		if at == 0 || rest[at-1] == '/' {
			segment, _, _ := strings.Cut(rest[at:], "/")
			if segment == "." || segment == ".." {
				return true
			}
		}
		at++
	}
	return false
}
