package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"capri"
)

// What a password costs to check: argon2id as OWASP recommends it for where memory is scarce. The numbers stand in each
// stored hash, so they may change; a hash of other ones is replaced when its user next logs in.
const (
	argonMemory  = 19 * 1024 // KiB
	argonTime    = 2
	argonThreads = 1
	argonSalt    = 16
	argonSum     = 32
)

// hashing bounds how much memory log-ins take: that of so many at once. The others wait.
var hashing = make(chan struct{}, 2)

// hashed runs argon2 when there is room for it.
func hashed(ctx context.Context, password string, salt []byte, memory, times uint32, threads uint8, size uint32) ([]byte, error) {
	select {
	case hashing <- struct{}{}:
	case <-ctx.Done():
		return nil, capri.Unavailable("many people log in at this moment: try again")
	}
	defer func() { <-hashing }()
	return argon2.IDKey([]byte(password), salt, times, memory, threads, size), nil
}

// HashPassword is what is stored of a password.
func HashPassword(ctx context.Context, password string) (string, error) {
	salt := make([]byte, argonSalt)
	rand.Read(salt) // never fails
	sum, err := hashed(ctx, password, salt, argonMemory, argonTime, argonThreads, argonSum)
	if err != nil {
		return "", err
	}
	return encodeHash(argonMemory, argonTime, argonThreads, salt, sum), nil
}

func encodeHash(memory, times uint32, threads uint8, salt, sum []byte) string {
	b := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memory, times, threads, b.EncodeToString(salt), b.EncodeToString(sum))
}

// nobodysHash is checked where there is no user or no password, so that the answer takes as long.
var nobodysHash = encodeHash(argonMemory, argonTime, argonThreads, make([]byte, argonSalt), make([]byte, argonSum))

// checkPassword tells whether a password is the one of a stored hash, and whether that should be made anew. An empty hash is
// nobody's, and takes as long.
func checkPassword(ctx context.Context, stored, password string) (right, old bool, err error) {
	known := stored != ""
	if !known {
		stored = nobodysHash
	}
	var memory, times uint32
	var threads uint8
	parts := strings.Split(stored, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return false, false, errors.New("a stored password is not in the form of argon2id")
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &times, &threads); err != nil {
		return false, false, errors.New("a stored password has parameters that cannot be read")
	}
	salt, err1 := base64.RawStdEncoding.Strict().DecodeString(parts[4])
	sum, err2 := base64.RawStdEncoding.Strict().DecodeString(parts[5])
	// Bounds, for whoever can write the table must not be able to take a master's memory.
	if err1 != nil || err2 != nil || len(salt) < 8 || len(sum) < 16 || len(sum) > 128 || memory < 8 || memory > 256*1024 || times < 1 || times > 16 || threads < 1 || threads > 16 {
		return false, false, errors.New("a stored password has parameters that are out of bounds")
	}
	is, err := hashed(ctx, password, salt, memory, times, threads, uint32(len(sum)))
	if err != nil {
		return false, false, err
	}
	same := subtle.ConstantTimeCompare(is, sum) == 1
	return same && known, memory != argonMemory || times != argonTime || threads != argonThreads || len(sum) != argonSum, nil
}

// Lengths of passwords, in characters and (the most) bytes: nobody shall hash a megabyte.
const (
	leastPassword = 12
	mostPassword  = 1024
)

// CheckNewPassword says what is wrong with a password that somebody chose, or nothing. The password itself is in no error.
func CheckNewPassword(user, password string) error {
	refuse := func(want string) error { return capri.Invalid("password", "", want) }
	switch {
	case !utf8.ValidString(password):
		return refuse("text in UTF-8")
	case utf8.RuneCountInString(password) < leastPassword:
		return refuse(fmt.Sprintf("at least %d characters", leastPassword))
	case len(password) > mostPassword:
		return refuse(fmt.Sprintf("at most %d bytes", mostPassword))
	case strings.TrimSpace(password) != password:
		return refuse("no spaces at its ends")
	}
	plain := plain(password)
	name := plainName(user)
	switch {
	case len(name) >= 3 && strings.Contains(plain, name) && utf8.RuneCountInString(plain)-utf8.RuneCountInString(name) < 8:
		return refuse("something that is not the user's name with a few letters more")
	case distinct(password) < 5:
		return refuse("more than a few letters repeated")
	case wellKnown[plain], wellKnown[strings.Trim(plain, "0123456789")], wellKnown[unfold.Replace(strings.Trim(plain, "0123456789"))]:
		return refuse("none of the passwords that everybody tries first")
	}
	return nil
}

func plainName(user string) string {
	name, _, _ := strings.Cut(user, "@")
	return plain(name)
}

// plain is a password without what people add to please a rule: capitals and signs.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, strings.NewReplacer("@", "a", "$", "s").Replace(s))
}

// unfold reads digits that stand for letters inside a word.
var unfold = strings.NewReplacer("0", "o", "1", "i", "3", "e", "5", "s")

func distinct(s string) int {
	seen := map[rune]bool{}
	for _, r := range s {
		seen[r] = true
	}
	return len(seen)
}

// wellKnown are words and rows of keys that lists of leaked and of built-in passwords begin with. A password is one of them
// also with digits around it and signs in it.
var wellKnown = func() map[string]bool {
	m := map[string]bool{}
	for word := range strings.FieldsSeq(`
		123456789012 1234567890123 12345678901234 1234567890123456 012345678901 098765432109 987654321098 112233445566 111222333444 123123123123
		123456789abc 123456789qwe 1q2w3e4r5t6y 1q2w3e4r5t6y7u 1qaz2wsx3edc 1qaz2wsx3edc4rfv qazwsxedcrfv q1w2e3r4t5y6 1234qwerasdf qwer1234asdf a1b2c3d4e5f6 aa123456789 a123456789012 qq123456789 abc123abc123
		qwerty qwertyui qwertyuiop qwertyuiopas qwertyuiopasdf asdfghjkl asdfghjklzxc zxcvbnm zxcvbnmasdfg qwertyqwerty asdfasdfasdf abcdef abcdefg abcdefgh abcdefghij abcdefghijkl abcd abc aabbccddeeff
		password passwordpassword mypassword thepassword newpassword passwort passphrase secret secretsecret topsecret geheim
		welcome welcomewelcome welcomeback letmein letmeinletmein letmeinplease iloveyou iloveyouforever trustno iamthebest changeme changemenow changemeplease changeit default defaultpassword defaulttoken temporary temppassword
		admin adminadmin adminadminadmin administrator superadmin superuser root rootroot rootrootroot user useruser guest guestguest test testtest testtesttest testing master mastermaster operator
		capri capricapri capricapricapri capricornus dolphinscheduler dolphin airflow airflowairflow xxljob xxljobadmin hadoop hadoophadoop hive spark jarvis chin scheduler
		correcthorsebatterystaple monkey dragon football baseball sunshine princess superman batman starwars whatever michael jennifer woaini woaini1314520 5201314woaini nihao nihaonihao
	`) {
		m[word] = true
	}
	return m
}()

// OneTimePassword makes a password that an admin hands to somebody, who has to change it at once. It can be read out.
func OneTimePassword() string {
	t := rand.Text() // 130 bits in 26 letters and digits
	return t[:5] + "-" + t[5:10] + "-" + t[10:15] + "-" + t[15:20]
}
