package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	lib "github.com/colinmarc/hdfs/v2"

	"capri"
	"capri/conf"
)

// nameService is one HDFS: its name-nodes, and the clients that ask them.
type nameService struct {
	o       *Options
	name    string
	slots   chan struct{} // questions at once
	fetches chan struct{} // and files at once: a large one must not hold up looks
	keeps   chan struct{} // and of the store: no job waits for its log
	login   *login        // nil: without Kerberos

	mu     sync.Mutex
	nodes  []string             // the one to ask first is the first
	idle   map[string][]*client // by user
	silent error                // why it is left alone
	until  time.Time            // for so long
}

// client is one connection to a name service. It is used by one goroutine at a time: the library asks for that.
type client struct {
	*lib.Client
	g     *guard
	user  string
	timer *time.Timer // ends it when it was idle for long
}

// idleFor is short, because the library asks its name-node something each second on behalf of every client.
const idleFor = 5 * time.Second

func newNameService(o *Options, s conf.NameService) *nameService {
	n := &nameService{o: o, name: s.Name, nodes: slices.Clone(s.NameNodes), idle: map[string][]*client{},
		slots: make(chan struct{}, o.Connections), fetches: make(chan struct{}, o.Connections), keeps: make(chan struct{}, o.Connections)}
	if o.Kerberos != nil {
		n.login = &login{k: *o.Kerberos}
	}
	return n
}

// call asks as a user, within the time limit for one answer. The next name-node is tried where one is silent; f may
// run more than once.
func (n *nameService) call(ctx context.Context, user string, f func(*client) error) error {
	return n.callIn(ctx, n.slots, n.o.Timeout, user, f)
}

func (n *nameService) callIn(ctx context.Context, slots chan struct{}, limit time.Duration, user string, f func(*client) error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := n.left(); err != nil {
		return err
	}
	tries := n.count()
	for {
		c := n.take(user)
		reused := c != nil
		if !reused {
			c = &client{g: newGuard(n.o.Timeout), user: user}
		}
		err := n.run(ctx, c, limit, f)
		if !away(err) || ctx.Err() != nil {
			if err == nil || answered(err) {
				n.heard(c.g.nameNode())
			}
			n.give(c)
			if ctx.Err() != nil && err != nil && !answered(err) {
				return ctx.Err()
			}
			return err
		}
		late := c.g.late.Load()
		if late {
			err = fmt.Errorf("%s does not answer within %s", c.g.nameNode(), limit)
		}
		n.drop(c)
		n.rotate(c.g.nameNode())
		if reused && !late {
			n.dropIdle() // the name-node was restarted: all connections from before are as dead as this one
			continue
		}
		if tries--; tries <= 0 {
			return n.leave(err)
		}
	}
}

// run is one try of f, with a client that may have to be connected first.
func (n *nameService) run(ctx context.Context, c *client, limit time.Duration, f func(*client) error) error {
	stop := c.g.within(ctx, limit)
	defer stop()
	if c.Client == nil {
		if err := n.connect(c); err != nil {
			return err
		}
	}
	return f(c)
}

func (n *nameService) connect(c *client) error {
	o := lib.ClientOptions{
		Addresses: n.addresses(), User: c.user, UseDatanodeHostname: n.o.ByName, DataTransferProtection: n.o.Protection,
		NamenodeDialFunc: c.g.dialNameNode, DatanodeDialFunc: c.g.dialDataNode,
	}
	if n.login != nil {
		k, err := n.login.client()
		if err != nil {
			return err
		}
		o.KerberosClient, o.KerberosServicePrincipleName = k, n.login.k.NameNode
	}
	var err error
	if c.Client, err = lib.NewClient(o); err != nil && n.login != nil {
		n.login.forget() // its tickets may be the cause
	}
	return err
}

func (n *nameService) addresses() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.nodes)
}

func (n *nameService) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.nodes)
}

// take gives an idle client that is still good.
func (n *nameService) take(user string) *client {
	n.mu.Lock()
	defer n.mu.Unlock()
	for list := n.idle[user]; len(list) > 0; list = n.idle[user] {
		c := list[len(list)-1]
		n.idle[user] = list[:len(list)-1]
		if !c.timer.Stop() { // it is being ended at this moment
			continue
		}
		if !c.g.over() {
			return c
		}
		go n.drop(c)
	}
	delete(n.idle, user)
	return nil
}

// give takes a client back, or ends it where anything about it is in doubt.
func (n *nameService) give(c *client) {
	if c.Client == nil || c.g.over() {
		n.drop(c)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.timer = time.AfterFunc(idleFor, func() {
		n.mu.Lock()
		list := slices.DeleteFunc(n.idle[c.user], func(o *client) bool { return o == c })
		if n.idle[c.user] = list; len(list) == 0 {
			delete(n.idle, c.user)
		}
		n.mu.Unlock()
		n.drop(c)
	})
	n.idle[c.user] = append(n.idle[c.user], c)
}

// drop ends a client. The connections go first: Close waits for a question that may be under way on them.
func (n *nameService) drop(c *client) {
	c.g.end()
	if c.Client != nil {
		c.Close()
	}
}

func (n *nameService) dropIdle() {
	n.mu.Lock()
	all := n.idle
	n.idle = map[string][]*client{}
	n.mu.Unlock()
	for _, list := range all {
		for _, c := range list {
			if c.timer.Stop() {
				n.drop(c)
			}
		}
	}
}

// rotate puts a name-node last that did not answer.
func (n *nameService) rotate(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[0] == address {
		n.nodes = append(slices.Clone(n.nodes[1:]), address)
	}
}

// heard notes who answered: the active one is asked first from now on.
func (n *nameService) heard(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = nil
	if at := slices.Index(n.nodes, address); at > 0 {
		n.nodes = slices.Concat(n.nodes[at:], n.nodes[:at])
	}
}

// leave lets nobody else wait for what has just not answered.
func (n *nameService) leave(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent, n.until = err, time.Now().Add(n.o.RetryAfter)
	return capri.Unavailable("hdfs://%s cannot be asked: %s", n.name, plain(err))
}

// left says why nobody is asked at the moment.
func (n *nameService) left() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent == nil || !time.Now().Before(n.until) {
		return nil
	}
	return capri.Unavailable("hdfs://%s cannot be asked: %s (it is left alone for %s)", n.name, plain(n.silent), n.o.RetryAfter)
}

// Kinds of answers. What is none of them came from the way there, and says nothing about the path.
const (
	exceptionStandby   = "org.apache.hadoop.ipc.StandbyException"
	exceptionRetriable = "org.apache.hadoop.ipc.RetriableException"
	exceptionBusy      = "org.apache.hadoop.ipc.RpcServerException"
	exceptionAccess    = "org.apache.hadoop.security.AccessControlException"
	exceptionAbsent    = "java.io.FileNotFoundException"
	exceptionParent    = "org.apache.hadoop.fs.ParentNotDirectoryException"
	exceptionSafeMode  = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
)

// exception is the name of what a name-node threw, "" for everything else.
func exception(err error) string {
	var remote lib.Error
	if errors.As(err, &remote) {
		return remote.Exception()
	}
	return ""
}

// answered: a name-node said something about the path, if only "no".
func answered(err error) bool {
	var d *dataError
	switch exception(err) {
	case "":
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrExist) ||
			errors.As(err, &d) || errors.Is(err, capri.ErrInvalid)
	case exceptionStandby, exceptionRetriable, exceptionBusy:
		return false
	}
	return true
}

// away: no name-node answered.
func away(err error) bool { return err != nil && !answered(err) }

// dataError is of a data-node, or of our own disk: the name-node is well.
type dataError struct{ err error }

func (e *dataError) Error() string { return e.err.Error() }
func (e *dataError) Unwrap() error { return e.err }

const plainStandby = "none of its name-nodes is active"

// plain says in words what the library says in Java.
func plain(err error) string {
	text := err.Error()
	if strings.Contains(text, exceptionStandby) {
		return plainStandby
	}
	text = strings.TrimPrefix(text, "no available namenodes: ")
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		text = strings.TrimPrefix(pe.Err.Error(), "no available namenodes: ")
	}
	var remote lib.Error
	if errors.As(err, &remote) {
		first, _, _ := strings.Cut(remote.Message(), "\n")
		if short := remote.Exception(); first == "" {
			first = short[strings.LastIndexByte(short, '.')+1:]
		}
		return first
	}
	return text
}

// named puts before an error what was tried, and makes of what HDFS refused an error of ours.
func named(tried string, err error) error {
	switch {
	case errors.Is(err, capri.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, capri.ErrInvalid):
		return fmt.Errorf("%s: %w", tried, err)
	case errors.Is(err, context.DeadlineExceeded):
		return capri.Unavailable("%s: no answer in time", tried)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w", tried, fs.ErrPermission)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", tried, fs.ErrNotExist)
	}
	return fmt.Errorf("%s: %s", tried, plain(err))
}
