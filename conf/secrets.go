package conf

import (
	"slices"
	"strings"
)

// leastSecret is how long a secret is that people choose for Capri and another program: who can guess it speaks for either.
const leastSecret = 16

// samples are what examples and forms have where a secret belongs. A system that runs with one is open to everybody who has read
// the same page.
var samples = []string{"changeme", "changeit", "secret", "password", "passwd", "token", "defaulttoken", "key", "mysecret", "mytoken", "yoursecret", "yourtoken", "yourpassword", "yourkey",
	"example", "sample", "test", "admin", "capri", "todo", "fixme", "redacted", "none", "null"}

// isSample tells whether a secret is one of an example: a word for it, in whatever writing, or a place to be filled in.
func isSample(secret string) bool {
	plain := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" -_.…*<>[](){}$%!\"'", r) {
			return -1
		}
		return r
	}, strings.ToLower(secret))
	return plain == "" || strings.Trim(plain, "x") == "" || strings.Trim(plain, "0") == "" || slices.Contains(samples, plain) || strings.HasPrefix(secret, "<") && strings.HasSuffix(secret, ">")
}

// weak says what is wrong with a secret of our own, or nothing. The secret itself is in no message.
func weak(secret string) (want string) {
	switch {
	case secret == "":
		return ""
	case isSample(secret):
		return "a secret of your own, and not one of an example"
	case len(secret) < leastSecret:
		return "at least 16 characters, such as openssl rand -base64 24 writes"
	}
	return ""
}
