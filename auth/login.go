package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"capri"
	"capri/sql/store"
)

// How long a session lasts: since it was last used, and altogether. A browser's is for a shift, the command line's for what
// people do now and then.
const (
	browserIdle = 12 * time.Hour
	browserMost = 7 * 24 * time.Hour
	commandIdle = 7 * 24 * time.Hour
	commandMost = 30 * 24 * time.Hour

	// OneTimeLife is how long the password that an admin set is good for a first log-in.
	OneTimeLife = 72 * time.Hour
)

// What a session is for: the name of its credential.
const (
	Browser = "browser"
	Command = "command"
)

func idleOf(use string) time.Duration {
	if use == Command {
		return commandIdle
	}
	return browserIdle
}

// How failures are counted. Nobody can keep somebody else out for long: what others do counts for the name alone, and makes
// its owner wait half a minute at most; what is severe counts for the name from one address.
const failureMemory = time.Hour

func subjects(user, address string) (pair, name, from store.LoginSubject) {
	count := func(free int, most time.Duration, kind string, parts ...string) store.LoginSubject {
		h := sha256.New()
		fmt.Fprintf(h, "%s\x00%q", kind, parts) // never fails
		return store.LoginSubject{Subject: hex.EncodeToString(h.Sum(nil)), Free: free, Most: most, Memory: failureMemory}
	}
	return count(5, 15*time.Minute, "pair", user, address), count(20, 30*time.Second, "name", user), count(100, 30*time.Second, "address", address)
}

// network is what of an address somebody has to himself: of IPv6 a /64.
func network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // never fails for IPv6
	return p.String()
}

// ThrottledError: there were too many tries, and this one was not looked at.
type ThrottledError struct{ Wait time.Duration }

// Seconds are those of Retry-After.
func (e *ThrottledError) Seconds() int { return max(int(math.Ceil(e.Wait.Seconds())), 1) }

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("too many failed log-ins: the next is looked at in %d seconds", e.Seconds())
}
func (e *ThrottledError) Is(target error) bool { return target == capri.ErrForbidden }

// errWrong is one answer to an unknown name, a wrong password, somebody disabled and somebody without access.
var errWrong = &notInError{"the name or the password is wrong, or there is no access"}

// notInError is a refusal that says what people need, and is of the kind of errNobody.
type notInError struct{ text string }

func (e *notInError) Error() string        { return e.text }
func (e *notInError) Is(target error) bool { return target == errNobody }

// Session is what somebody has who is logged in.
type Session struct {
	User      string
	Token     string // shown this once
	ExpiresAt capri.Instant
	OneTime   bool // the password has to be changed before anything else
}

// LogIn checks a password and begins a session. address is where the caller is; use is Browser or Command. IsNobody tells
// that it was refused; a ThrottledError that it was not looked at.
func LogIn(ctx context.Context, s *store.Store, user, password, address, use string) (Session, error) {
	l, better, err := verify(ctx, s, user, password, address)
	if err != nil {
		return Session{}, err
	}
	var session Session
	err = s.Write(ctx, "begin a session", user, func(tx *store.Tx) error {
		// What was checked must still stand: an admin may have disabled the user meanwhile.
		now, found, err := tx.Login(user)
		if err != nil {
			return err
		}
		if !found || !now.Enabled || now.Role == "" || now.PasswordAt != l.PasswordAt {
			return errWrong
		}
		if better != "" {
			if err := tx.Rehash(user, better); err != nil {
				return err
			}
		}
		if session, err = beginSession(tx, now, use); err != nil {
			return err
		}
		pair, name, from := subjects(user, network(address))
		if err := tx.LoggedIn(pair.Subject, name.Subject, from.Subject); err != nil {
			return err
		}
		return tx.LogAction("log_in", user, use+" from "+address)
	})
	return session, err
}

// beginSession makes the row of a session.
func beginSession(tx *store.Tx, l store.Login, use string) (Session, error) {
	most := browserMost
	if use == Command {
		most = commandMost
	}
	session := Session{User: l.User, Token: NewKey(), ExpiresAt: tx.Now.Add(most), OneTime: l.OneTime}
	return session, tx.AddCredential(store.Credential{Kind: store.UserSession, Holder: l.User, Name: use, ExpiresAt: session.ExpiresAt}, Hash(session.Token))
}

// verify counts the try, and checks the password. better is a hash of it by the parameters of now, where the stored one has others.
func verify(ctx context.Context, s *store.Store, user, password, address string) (l store.Login, better string, err error) {
	pair, name, from := subjects(user, network(address))
	var wait time.Duration
	var now capri.Instant
	err = s.Write(ctx, "count a log-in", "api", func(tx *store.Tx) (err error) {
		now = tx.Now
		wait, err = tx.CountLogin([]store.LoginSubject{pair, name, from})
		return err
	})
	if err != nil {
		return store.Login{}, "", err
	}
	if wait > 0 {
		return store.Login{}, "", &ThrottledError{Wait: wait}
	}
	l, err = s.Login(ctx, user)
	if err != nil && !errors.Is(err, capri.ErrNotFound) {
		return store.Login{}, "", err
	}
	if !l.Enabled || l.Role == "" {
		l.Password = ""
	}
	if len(password) > mostPassword {
		password = ""
	}
	right, old, err := checkPassword(ctx, l.Password, password)
	if err != nil {
		return store.Login{}, "", err
	}
	if !right {
		return store.Login{}, "", errWrong
	}
	if l.OneTime && now.Sub(l.PasswordAt) > OneTimeLife {
		return store.Login{}, "", &notInError{fmt.Sprintf("this one-time password is more than %d hours old: ask an admin for another", int(OneTimeLife.Hours()))}
	}
	if old {
		better, err = HashPassword(ctx, password)
	}
	return l, better, err
}

// ChangePassword sets somebody's own password, who has to know the one he has. All his sessions end, and one begins in place of
// the caller's.
func ChangePassword(ctx context.Context, s *store.Store, user, was, is, address, use string) (Session, error) {
	if err := CheckNewPassword(user, is); err != nil {
		return Session{}, err
	}
	if was == is {
		return Session{}, capri.Invalid("password", "", "another one than before")
	}
	l, _, err := verify(ctx, s, user, was, address)
	if IsNobody(err) {
		return Session{}, capri.Forbidden("the password of now is wrong")
	}
	if err != nil {
		return Session{}, err
	}
	hash, err := HashPassword(ctx, is)
	if err != nil {
		return Session{}, err
	}
	var session Session
	err = s.Write(ctx, "change a password", user, func(tx *store.Tx) error {
		now, found, err := tx.Login(user)
		if err != nil {
			return err
		}
		if !found || !now.Enabled || now.PasswordAt != l.PasswordAt {
			return capri.Conflict("somebody else has changed this at the same moment")
		}
		if err := tx.SetPassword(user, hash, false); err != nil {
			return err
		}
		if _, err := tx.EndCredentials(user, store.UserSession); err != nil {
			return err
		}
		now.OneTime = false
		if session, err = beginSession(tx, now, use); err != nil {
			return err
		}
		pair, name, from := subjects(user, network(address))
		if err := tx.LoggedIn(pair.Subject, name.Subject, from.Subject); err != nil {
			return err
		}
		return tx.LogAction("password_change", user, "from "+address)
	})
	return session, err
}
