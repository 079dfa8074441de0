package conf

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// field is one key of the configuration: its path and the place in the struct that holds its value.
type field struct {
	key    string
	secret bool
	value  reflect.Value
}

// fieldsOf lists the keys of c in the order of the struct, which is the order of capri.yaml and of Print.
func fieldsOf(c *Config) []field {
	var list []field
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			tag, ok := v.Type().Field(i).Tag.Lookup("conf")
			if !ok {
				continue
			}
			name, option, _ := strings.Cut(tag, ",")
			if fv := v.Field(i); fv.Kind() == reflect.Struct {
				walk(prefix+name+".", fv)
			} else {
				list = append(list, field{key: prefix + name, secret: option == "secret", value: fv})
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem())
	return list
}

// set reads text into the field. It answers what would be right when text is not.
func (f field) set(text string) (want string) {
	switch p := f.value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *[]string:
		*p = nil
		for _, s := range strings.Split(text, ",") {
			if s = strings.TrimSpace(s); s != "" {
				*p = append(*p, s)
			}
		}
	case *int:
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return "a whole number"
		}
		*p = n
	case *time.Duration:
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return "a duration with its unit, such as 500ms, 30s or 2m"
		}
		*p = d
	default:
		panic("conf: " + f.key + " has a type that nobody reads: " + f.value.Type().String())
	}
	return ""
}

// text is what set would read again.
func (f field) text() string {
	switch v := f.value.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return v.String()
	case int:
		return strconv.Itoa(v)
	default:
		return f.value.String()
	}
}

// shown is text as people and logs may see it.
func (f field) shown(text string) string {
	switch {
	case !f.secret || text == "":
		return text
	case strings.HasSuffix(f.key, ".dsn"):
		return maskDSN(text)
	}
	return mask
}

const mask = "***"

// maskDSN hides the password of user:password@tcp(host)/name. It works on text that the driver refuses, too:
// a DSN with a slip in it is exactly what ends up in a message. When in doubt it hides too much.
func maskDSN(dsn string) string {
	rest, tail := dsn, ""
	if slash := strings.LastIndexByte(dsn, '/'); slash >= 0 {
		rest, tail = dsn[:slash], dsn[slash:]
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		if at = strings.LastIndexByte(dsn, '@'); at < 0 {
			if strings.IndexByte(dsn, ':') >= 0 && strings.IndexByte(dsn, '(') < 0 {
				return mask // "user:password" without an address
			}
			return dsn
		}
		rest, tail = dsn, ""
	}
	colon := strings.IndexByte(rest[:at], ':')
	if colon < 0 {
		return dsn
	}
	return rest[:colon+1] + mask + rest[at:] + tail
}
