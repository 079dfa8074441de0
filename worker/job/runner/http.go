package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"capri"
)

// Bounds of what is read and logged of an answer.
const (
	mostAnswer = 1 << 20
	mostLogged = 16 << 10
)

// refused are networks that no call reaches unless worker.http_allow names them. Whoever may define a task may have this
// machine call any address, and some answer with the machine's own keys: the metadata services of clouds live at
// link-local addresses and at the odd ones below. What a name resolves to is judged, when the connection is made: a check
// of the text would miss names, other spellings of numbers, and answers of a name server that change in between.
var refused = prefixes(
	"169.254.0.0/16", "fe80::/10", // link-local: AWS, Azure, GCP, OpenStack
	"fd00:ec2::/32", "fd20:ce::/32", // AWS and GCP by IPv6
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", // Alibaba, Azure's host, Oracle
	"0.0.0.0/8", "::/128", "224.0.0.0/4", "ff00::/8", "255.255.255.255/32", // nobody's own address
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// refusal is an error that asking again does not cure.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// reachable says why an address may not be called, or nothing.
func reachable(a netip.Addr, allow []netip.Prefix) error {
	in := func(list []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	a = a.Unmap().WithZone("")
	if in(allow, a) {
		return nil
	}
	for _, hop := range append(embedded(a), a) {
		if in(refused, hop) {
			return &refusal{fmt.Sprintf("%s is a link-local, metadata or special address, which jobs of type http do not call (worker.http_allow lists exceptions)", a)}
		}
	}
	return nil
}

// embedded gives the IPv4 address that a gateway would turn an IPv6 address into: NAT64, 6to4, IPv4-compatible.
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	four := func(at int) []netip.Addr { return []netip.Addr{netip.AddrFrom4([4]byte(b[at : at+4]))} }
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a) && a != netip.IPv6Loopback():
		return four(12)
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return four(2)
	}
	return nil
}

// caller makes the requests of one job.
type caller struct {
	c      *Call
	client *http.Client
	stdout io.Writer
}

func newCaller(c *Call, stdout io.Writer) (*caller, error) {
	var allow []netip.Prefix
	for _, s := range c.Allow {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		allow = append(allow, p.Masked())
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return reachable(to.Addr(), allow)
	}}
	return &caller{c: c, stdout: stdout, client: &http.Client{
		// No proxy: it would be the one that resolves names, and nobody would look at what they resolve to.
		Transport: &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: 30 * time.Second, ForceAttemptHTTP2: true},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			first := via[0].URL
			if !strings.EqualFold(to.URL.Host, first.Host) || first.Scheme == "https" && to.URL.Scheme != "https" {
				return &refusal{"it redirects to " + to.URL.Scheme + "://" + to.URL.Host + ", and redirects to other hosts or from https to http are not followed"}
			}
			if len(via) > 5 {
				return &refusal{"it redirects more than five times"}
			}
			return nil
		},
	}}, nil
}

// answer is what came back.
type answer struct {
	status int
	line   string
	body   []byte
	cut    bool // there was more than mostAnswer
}

// do makes one request. headers: those of the definition are sent.
func (c *caller) do(ctx context.Context, method string, to *url.URL, body []byte, contentType string, headers bool) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(cmp.Or(c.c.HTTP.TimeoutS, 60))*time.Second)
	defer cancel()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), reader)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "capri")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for _, name := range []string{"Task", "Batch-Id", "Batch-No", "Attempt", "Data-Start", "Data-End"} {
		if v := os.Getenv("CAPRI_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))); v != "" {
			req.Header.Set("Capri-"+name, v)
		}
	}
	if v := os.Getenv("CAPRI_ATTEMPT"); v != "" && method != http.MethodGet && method != http.MethodHead {
		req.Header.Set("Idempotency-Key", v)
	}
	if headers {
		for name, value := range c.c.HTTP.Headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := c.client.Do(req)
	if err != nil {
		var outer *url.Error // its text has the whole address, with its query
		if errors.As(err, &outer) {
			err = outer.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %d s", cmp.Or(c.c.HTTP.TimeoutS, 60))
		}
		return nil, fmt.Errorf("%s %s: %w", method, shown(to), err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, line: fmt.Sprintf("%s %s → %s", method, shown(to), resp.Status)}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s, and then: %w", a.line, err)
	}
	if len(a.body) > mostAnswer {
		a.body, a.cut = a.body[:mostAnswer], true
	}
	return a, nil
}

// log writes an answer to the job's output.
func (c *caller) log(a *answer) {
	fmt.Fprintf(c.stdout, "%s, %d bytes\n", a.line, len(a.body))
	text := a.body
	if len(text) > mostLogged {
		text = text[:mostLogged]
	}
	if len(text) > 0 {
		fmt.Fprintln(c.stdout, strings.TrimRight(strings.ToValidUTF8(string(text), "�"), "\n"))
	}
	if len(text) < len(a.body) || a.cut {
		fmt.Fprintf(c.stdout, "… (the log keeps %d KB of an answer)\n", mostLogged>>10)
	}
}

// shown is an address as logs may have it: a query often holds a key.
func shown(u *url.URL) string {
	s := u.Scheme + "://" + u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		s += "?…"
	}
	return s
}

// call makes the call, polls, and judges.
func call(ctx context.Context, c *Call, stdout, stderr io.Writer) int {
	err := perform(ctx, c, stdout)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "told to end; what the called system has begun goes on there")
		return exitTold
	case err != nil:
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return 0
}

func perform(ctx context.Context, c *Call, stdout io.Writer) error {
	cl, err := newCaller(c, stdout)
	if err != nil {
		return err
	}
	to, err := url.Parse(c.URL)
	if err != nil {
		return errors.New("the address cannot be read") // the error would have all of it
	}
	body, contentType, err := c.payload(to)
	if err != nil {
		return err
	}
	a, err := cl.do(ctx, cmp.Or(c.HTTP.Method, http.MethodGet), to, body, contentType, true)
	if err != nil {
		return err
	}
	cl.log(a)
	if in, _ := capri.StatusIn(cmp.Or(c.HTTP.Status, "200-299"), a.status); !in {
		return fmt.Errorf("status %d, want %s", a.status, cmp.Or(c.HTTP.Status, "200-299"))
	}
	if c.HTTP.Poll.URL != "" {
		if a, err = cl.poll(ctx, to, a); err != nil {
			return err
		}
	}
	if rule := c.HTTP.Success; rule.Path != "" {
		if a.cut {
			return fmt.Errorf("the answer has more than %d KB, so its %s is not known", mostAnswer>>10, rule.Path)
		}
		if holds, found := rule.Holds(a.body); !holds {
			return fmt.Errorf("%s is %q, want %s", rule.Path, found, strings.Join(rule.In, " or "))
		}
	}
	return nil
}

// payload gives the body. Parameters go where they are data: into the query of a request that has no body or a body of the
// definition's own, and else into a JSON object.
func (c *Call) payload(to *url.URL) (body []byte, contentType string, err error) {
	method := cmp.Or(c.HTTP.Method, http.MethodGet)
	if c.HTTP.Body == "" && len(c.Params) > 0 && (method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch) {
		body, err = json.Marshal(c.Params)
		return body, "application/json", err
	}
	if len(c.Params) > 0 {
		q := url.Values{}
		for k, v := range c.Params {
			q.Set(k, v)
		}
		to.RawQuery = strings.Trim(to.RawQuery+"&"+q.Encode(), "&") // what stands there stays as it is written
	}
	switch {
	case c.HTTP.Body == "":
		return nil, "", nil
	case json.Valid([]byte(c.HTTP.Body)):
		contentType = "application/json"
	default:
		contentType = "text/plain; charset=utf-8"
	}
	return []byte(c.HTTP.Body), contentType, nil
}

// poll asks until the rule holds. A server that restarts, or is busy, is asked again.
func (c *caller) poll(ctx context.Context, base *url.URL, first *answer) (*answer, error) {
	p := c.c.HTTP.Poll
	text := p.URL
	if p.ID != "" {
		id, ok := capri.JSONAt(first.body, p.ID)
		if !ok || id == "" || id == "." || id == ".." {
			return nil, fmt.Errorf("the answer has no text or number at %s, so there is nothing to ask for", p.ID)
		}
		text = strings.ReplaceAll(text, capri.HTTPID, escape(id))
	}
	to, err := base.Parse(text)
	if err != nil {
		return nil, errors.New("the address of the poll cannot be read")
	}
	every, limit := time.Duration(cmp.Or(p.EveryS, 10))*time.Second, time.Duration(cmp.Or(p.LimitMinutes, 60))*time.Minute
	headers := strings.EqualFold(to.Host, base.Host) && to.Scheme == base.Scheme // what they authorise is meant for that host
	end := time.NewTimer(limit)
	defer end.Stop()
	last := ""
	for {
		a, err := c.do(ctx, http.MethodGet, to, nil, "", headers)
		var no *refusal
		said := ""
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &no):
			return nil, err
		case err != nil:
			said = err.Error()
		case a.status >= 500 || a.status == http.StatusTooManyRequests:
			said = a.line
		case a.status < 200 || a.status > 299:
			c.log(a)
			return nil, fmt.Errorf("status %d while asking what became of it", a.status)
		case a.cut:
			return nil, fmt.Errorf("the answer has more than %d KB, so its %s is not known", mostAnswer>>10, p.Until.Path)
		default:
			holds, found := p.Until.Holds(a.body)
			if holds {
				c.log(a)
				return a, nil
			}
			said = fmt.Sprintf("%s: %s is %q", a.line, p.Until.Path, found)
		}
		if said != last { // ten thousand equal lines would hide the ones that matter
			fmt.Fprintln(c.stdout, said)
			last = said
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
			return nil, fmt.Errorf("after %v %s is not yet %s; the last was: %s", limit, p.Until.Path, strings.Join(p.Until.In, " or "), last)
		case <-time.After(every):
		}
	}
}

// escape writes an id of another system so that it is one segment of a path, or one value of a query, whatever is in it.
func escape(id string) string {
	var b strings.Builder
	for _, c := range []byte(id) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
