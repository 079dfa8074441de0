package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is what a stream is to a person: how many columns it has, and whether it takes colour. The zero value is a file
// or a pipe, which gets everything in full and plain.
type terminal struct {
	columns int
	colour  bool
}

// terminalOf looks at a stream. NO_COLOR (no-color.org) and TERM=dumb say that colour is not wanted.
func terminalOf(w io.Writer, getenv func(string) string) terminal {
	f, ok := w.(*os.File)
	if !ok {
		return terminal{}
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return terminal{}
	}
	// Some terminals, those of CI among them, have no size.
	t := terminal{columns: int(size.Col), colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if t.columns == 0 {
		t.columns = 80
	}
	return t
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS) // /dev/null is a character device, too
	return err == nil
}

// progress is a bar on stderr that shows a person how far long work is; where nobody looks it writes nothing.
//
//	bar := a.progress("cold start of May")
//	defer bar.end()
//	bar.set(done, total)
type progress struct {
	w       io.Writer // nil: nobody looks
	what    string
	columns int
	now     func() time.Time

	mu    sync.Mutex
	drawn time.Time
	last  string
}

func (a *app) progress(what string) *progress {
	p := &progress{what: oneLine(what), now: time.Now}
	if t := terminalOf(a.err, a.getenv); t.columns > 0 {
		p.w, p.columns = a.err, t.columns
	}
	return p
}

// redraw is how often a bar is drawn at most, but for its end.
const redraw = 100 * time.Millisecond

// set says that so many of total are done. A total of 0 is not known yet.
func (p *progress) set(done, total int) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.drawn) < redraw && done < total {
		return
	}
	line := progressLine(p.what, done, total, p.columns)
	if line == p.last {
		return
	}
	p.drawn, p.last = p.now(), line
	fmt.Fprint(p.w, "\r\x1b[K"+line)
}

// end takes the bar away; what came of the work is for the command to say.
func (p *progress) end() {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.last = ""
	}
}

// progressLine is "what [#####     ] 42% 42/100", cut to the terminal's width: a line that wraps could not be taken back.
func progressLine(what string, done, total, columns int) string {
	const bar = 24
	line := fmt.Sprintf("%s %d", what, done)
	if total > 0 {
		done = min(max(done, 0), total)
		full := int(int64(bar) * int64(done) / int64(total))
		line = fmt.Sprintf("%s [%s%s] %3d%% %d/%d", what, strings.Repeat("#", full), strings.Repeat(" ", bar-full), int64(100)*int64(done)/int64(total), done, total)
	}
	if r := []rune(line); len(r) >= columns {
		line = string(r[max(0, len(r)-columns+1):]) // how far it is matters more than what it is
	}
	return line
}
