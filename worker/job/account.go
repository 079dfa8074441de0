package job

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"

	"capri"
	"capri/files"
)

// Account is whom a job runs as.
type Account = files.Account

// Accounts chooses and looks up accounts of this machine. It is safe for concurrent use.
type Accounts struct {
	fallback string // for jobs that name none, while we are root
	uid      int    // our own
	lookup   func(name string) (*Account, error)

	mu    sync.Mutex
	known map[string]known
}

type known struct {
	account *Account
	until   time.Time
}

// keepFor is how long an account is believed to be what it was: looking one up may ask a server.
const keepFor = time.Minute

// NewAccounts makes one. fallback is worker.default_account.
func NewAccounts(fallback string) *Accounts {
	return &Accounts{fallback: fallback, uid: os.Geteuid(), lookup: lookup, known: map[string]known{}}
}

// Of gives the account for a job that names name (or none). nil means the worker's own user, who is then not root.
func (a *Accounts) Of(name string) (*Account, error) {
	if a.uid != 0 {
		if name == "" {
			return nil, nil
		}
		acc, err := a.find(name)
		if err != nil {
			return nil, err
		}
		if int(acc.UID) != a.uid {
			return nil, capri.Forbidden("the job's account is %s, but this worker runs as user %d and not as root, so it can run jobs as itself alone", name, a.uid)
		}
		return nil, nil
	}
	if name == "" {
		name = a.fallback
	}
	if name == "" {
		return nil, capri.Forbidden("the job names no account, the worker is root, and worker.default_account is empty: jobs never run as root")
	}
	acc, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if acc.UID == 0 { // root has other names on some machines
		return nil, capri.Forbidden("account %s is root on this machine: jobs never run as root", name)
	}
	return acc, nil
}

func (a *Accounts) find(name string) (*Account, error) {
	a.mu.Lock()
	k, ok := a.known[name]
	a.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.account, nil
	}
	acc, err := a.lookup(name)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[name] = known{acc, time.Now().Add(keepFor)}
	return acc, nil
}

func lookup(name string) (*Account, error) {
	u, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		return nil, capri.NotFound("there is no account %q on this machine", name)
	}
	if err != nil {
		return nil, fmt.Errorf("look up account %s: %w", name, err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("look up account %s: %w", name, err)
	}
	acc := &Account{Name: name, UID: uint32(uid), GID: uint32(gid)}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("look up the groups of account %s: %w", name, err)
	}
	for _, id := range ids {
		g, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("look up the groups of account %s: %w", name, err)
		}
		acc.Groups = append(acc.Groups, uint32(g))
	}
	return acc, nil
}
