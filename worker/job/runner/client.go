package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// remote says how a client speaks of what it has started elsewhere. Ids are taken from its own phrases on stderr alone:
// a query may well print other people's ids, and those must not be killed.
type remote struct {
	what    string
	prefix  string         // of the id, before what the patterns capture
	started *regexp.Regexp // captures the id
	ended   *regexp.Regexp // captures the id of one that needs no kill
}

var remotes = map[string]remote{
	// Of Hive the MapReduce jobs alone. A Tez application may be a session of the server that others use, too; it
	// drops the query when its client goes.
	"hive": {"application", "application_", regexp.MustCompile(`Starting Job = job_(\d+_\d+)`), regexp.MustCompile(`Ended Job = job_(\d+_\d+)`)},
	"spark": {"application", "application_", regexp.MustCompile(`(?:Submitted application|Application report for) application_(\d+_\d+)`),
		regexp.MustCompile(`Application report for application_(\d+_\d+) \(state: (?:FINISHED|FAILED|KILLED)\)`)},
	"mapreduce": {"application", "application_", regexp.MustCompile(`(?:Submitted application application_|Running job: job_)(\d+_\d+)`),
		regexp.MustCompile(`Job job_(\d+_\d+) (?:completed|failed)`)},
	"trino": {"query", "", regexp.MustCompile(`Query (\d{8}_\d{6}_\d{5}_[a-z0-9]{5})\b`),
		regexp.MustCompile(`Query (\d{8}_\d{6}_\d{5}_[a-z0-9]{5})(?:, (?:FINISHED|FAILED)| failed)`)},
}

// Times of the end. The shim's SIGKILL comes 10 s after SIGTERM, unless the installation says less; a kill by the yarn
// client takes 2 to 5 s, most of it the start of a JVM.
const (
	patience  = 2 * time.Second // for a client that was told to end and may end its work by itself
	notice    = 200 * time.Millisecond
	killLimit = 30 * time.Second // of one try
	killTries = 3                // one may itself be hit by the signal that ends the job
	mostLine  = 64 << 10
	mostKills = 4 // at once
)

// watcher passes a client's stderr on and notes the ids in it.
type watcher struct {
	remote remote

	mu   sync.Mutex
	to   io.Writer
	line []byte
	ids  []string // started and not ended, in order
	over map[string]bool
	tell func(id string) // of what was started

	telling sync.WaitGroup
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to.Write(p) //nolint:errcheck // a full disk costs lines of the log; an error here would close the client's stderr, and end it
	for rest := p; len(rest) > 0; {
		end := bytes.IndexAny(rest, "\r\n") // a progress line is written over with \r
		if end < 0 {
			w.line = append(w.line, rest[:min(len(rest), mostLine-len(w.line))]...)
			break
		}
		w.line = append(w.line, rest[:min(end, mostLine-len(w.line))]...)
		w.read(w.line)
		w.line, rest = w.line[:0], rest[end+1:]
	}
	return len(p), nil
}

func (w *watcher) read(line []byte) {
	if m := w.remote.started.FindSubmatch(line); m != nil {
		id := w.remote.prefix + string(m[1])
		if !w.over[id] && !slices.Contains(w.ids, id) {
			w.ids = append(w.ids, id)
			fmt.Fprintf(w.to, "capri: the job has started %s %s\n", w.remote.what, id)
			w.telling.Go(func() { w.tell(id) })
		}
	}
	if m := w.remote.ended.FindSubmatch(line); m != nil {
		w.drop(w.remote.prefix + string(m[1]))
	}
}

func (w *watcher) drop(id string) {
	w.over[id] = true
	w.ids = slices.DeleteFunc(w.ids, func(s string) bool { return s == id })
}

// take gives the ids that nobody has dealt with yet, newest first.
func (w *watcher) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := slices.Clone(w.ids) // a line without its end is not read: half an id is somebody else's
	for _, id := range ids {
		w.drop(id)
	}
	slices.Reverse(ids)
	return ids
}

// told waits a moment for what is being told; the log has it as well.
func (w *watcher) told() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.telling.Wait()
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

func (w *watcher) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ids) > 0
}

func (w *watcher) say(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.to, "capri: "+format+"\n", a...)
}

// client runs a client to its end.
func client(ctx context.Context, c *Client, stdout, stderr io.Writer, tell func(id string)) int {
	kind, ok := remotes[c.Remote]
	if !ok {
		fmt.Fprintf(stderr, "this capri knows nothing of %q: let worker and program be of one version\n", c.Remote)
		return exitUsage
	}
	w := &watcher{remote: kind, to: stderr, over: map[string]bool{}, tell: tell}
	defer w.told()
	if c.Former != "" && !w.endFormer(c.Kill, c.Former) {
		return exitFailed
	}
	// ctx ends with the signal, which the client gets by itself; to kill it here would take away the time to tidy up.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, w
	cmd.WaitDelay = 5 * time.Second // something it has left behind may hold its stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, err)
		return exitNotFound
	}
	done := make(chan struct{})
	var waited error
	go func() {
		defer close(done)
		waited = cmd.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		// The signal went to the whole process group, so the client has it, too.
		select {
		case <-done:
		case <-time.After(patience):
		}
		w.end(c.Kill)
		<-done // in the worst case until SIGKILL
	}
	code := exitOf(cmd, waited)
	if code == 0 && w.busy() {
		// A client may have ended well because of the signal, which this process is about to notice, too.
		select {
		case <-ctx.Done():
		case <-time.After(notice):
		}
	}
	if code != 0 || ctx.Err() != nil {
		w.end(c.Kill)
	}
	if ctx.Err() != nil && code == 0 {
		code = exitTold
	}
	return code
}

func exitOf(cmd *exec.Cmd, err error) int {
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 || err == nil {
		return code
	}
	return exitFailed
}

// end ends what is known to run elsewhere, and says so.
func (w *watcher) end(kill []string) {
	var all sync.WaitGroup
	free := make(chan struct{}, mostKills)
	for _, id := range w.take() {
		if len(kill) == 0 {
			w.say("%s %s may still run: there is no client here that could kill it (worker.clients.yarn)", w.remote.what, id)
			continue
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			w.say("killing %s %s", w.remote.what, id)
			var err error
			for range killTries {
				if err = w.kill(kill, id); err == nil {
					return
				}
			}
			w.say("%s %s may still run: killing it failed: %v", w.remote.what, id, err)
		})
	}
	all.Wait()
}

// endFormer ends what the attempt before had started, if that still runs: its machine may have died with the client, and
// nobody else knows of it. While it may run, nothing is started beside it.
func (w *watcher) endFormer(kill []string, id string) bool {
	if len(kill) == 0 {
		w.say("%s %s of the attempt before may still run, and there is no client here that could end it (worker.clients.yarn)", w.remote.what, id)
		return false
	}
	w.say("ending %s %s of the attempt before, if it still runs", w.remote.what, id)
	var err error
	for range killTries {
		if err = w.kill(kill, id); err == nil {
			return true
		}
	}
	w.say("%s %s of the attempt before may still run: ending it failed: %v", w.remote.what, id, err)
	return false
}

// gone is how clients say that there is nothing to kill any more.
var gone = regexp.MustCompile(`(?i)(?:application|query)[^\n]*(?:has already finished|not found|not running|doesn't exist|does not exist)`)

func (w *watcher) kill(command []string, id string) error {
	argv := make([]string, len(command))
	for i, a := range command {
		argv[i] = strings.ReplaceAll(a, RemoteID, id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), killLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	err := cmd.Run()
	if lines := strings.TrimSpace(said.String()); lines != "" {
		w.say("%s", lines)
	}
	if err != nil && gone.Match(said.Bytes()) {
		return nil
	}
	return err
}
