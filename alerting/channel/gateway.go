package channel

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"capri"
	"capri/alerting"
	"capri/conf"
)

// answerMost bounds what is read of an answer.
const answerMost = 64 << 10

// gateway calls one gateway by HTTP.
type gateway struct {
	conf    conf.Gateway
	address *template.Template
	headers map[string]*template.Template
	body    *template.Template
	cover   *strings.Replacer
	client  *http.Client
	now     func() time.Time
}

// newGateway compiles what the configuration says; wrong names its keys without the gateway's place.
func newGateway(g conf.Gateway) (s *gateway, wrong capri.FieldErrors) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// No connection is kept: on a stale one a request is lost or, with an Idempotency-Key, sent twice behind our back.
	transport.DisableKeepAlives = true
	s = &gateway{conf: g, headers: map[string]*template.Template{}, now: time.Now, client: &http.Client{Transport: transport,
		// Redirects are not followed: they would hand the message, and the keys, to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	read := func(field, text string, p place) *template.Template {
		t, want := compile(text, p, g.Secrets)
		if want != "" {
			wrong = append(wrong, &capri.FieldError{Field: field, Want: want})
		}
		return t
	}
	s.address = read("url", g.URL, inAddress)
	for _, name := range slices.Sorted(maps.Keys(g.Headers)) {
		if !headerName.MatchString(name) || reserved[http.CanonicalHeaderKey(name)] {
			wrong = append(wrong, &capri.FieldError{Field: "headers", Value: name, Want: "names of headers that are not set otherwise"})
		}
		s.headers[name] = read("headers."+name, g.Headers[name], inHeader)
	}
	in, ok := placeOf(g.ContentType)
	if g.Body == "" { // then its type does not matter
		in, ok = inForm, true
	}
	if !ok {
		wrong = append(wrong, &capri.FieldError{Field: "content_type", Value: g.ContentType, Want: "JSON, XML or application/x-www-form-urlencoded: for others nobody knows how values are escaped"})
	} else {
		s.body = read("body", g.Body, in)
	}
	if _, ok := g.Secrets[g.Sign]; g.Sign != "" && !ok {
		wrong = append(wrong, &capri.FieldError{Field: "sign", Value: g.Sign, Want: "the name of one of the gateway's secrets"})
	}
	if wrong == nil {
		s.cover = s.newCover()
	}
	return s, wrong
}

var (
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	reserved   = map[string]bool{"Content-Type": true, "Content-Length": true, "Host": true, "Idempotency-Key": true, "Connection": true, "Transfer-Encoding": true}
	// secretHeader tells by a header's name that its value is nobody's business.
	secretHeader = regexp.MustCompile(`(?i)auth|cookie|token|secret|sign|passw|api-?key|access-?key`)
)

// newCover covers the secrets, and what the address and the headers may hold of such. Values of a message are none, so
// they are rendered without one; words too short for a key are left alone, or half of a conversation would be covered.
func (s *gateway) newCover() *strings.Replacer {
	secrets := slices.Collect(maps.Values(s.conf.Secrets))
	longEnough := func(least int, words ...string) {
		for _, w := range words {
			if len(w) >= least {
				secrets = append(secrets, w)
			}
		}
	}
	if address, err := render(s.address, alerting.Message{}); err == nil {
		if u, err := url.Parse(address); err == nil {
			longEnough(8, u.Path, u.EscapedPath(), u.RequestURI())
			longEnough(8, strings.Split(u.Path, "/")...)
			for _, values := range u.Query() {
				longEnough(4, values...)
			}
			password, _ := u.User.Password()
			longEnough(1, password)
		}
	}
	for name, t := range s.headers {
		if value, err := render(t, alerting.Message{}); err == nil && secretHeader.MatchString(name) {
			_, credentials, _ := strings.Cut(value, " ") // Bearer …
			longEnough(1, value, credentials)
		}
	}
	return newCover(secrets...)
}

func (s *gateway) Send(ctx context.Context, m alerting.Message) error {
	if m.To == "" && (s.conf.Name == alerting.SMS || s.conf.Name == alerting.Phone) {
		return &alerting.Refusal{Reason: "there is no number to send to"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
	defer cancel()
	t := traceOf(ctx)
	err := s.call(ctx, t, m)
	if err != nil {
		t.add("*", err.Error())
	}
	return err
}

func (s *gateway) call(ctx context.Context, t *trace, m alerting.Message) error {
	fail := func(doing string, err error) error {
		var u *url.Error
		if errors.As(err, &u) { // it repeats the address
			err = u.Err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %w", doing, s.conf.Name, context.Cause(ctx))
		}
		return fmt.Errorf("%s %s: %s", doing, s.conf.Name, firstWords(s.cover.Replace(err.Error())))
	}
	req, body, err := s.request(ctx, m)
	if err != nil {
		return fail("write what is sent to", err)
	}
	s.traceRequest(t, req, body)
	resp, err := s.client.Do(req)
	if err != nil {
		return fail("call", err)
	}
	defer resp.Body.Close()
	t.add("<", resp.Proto+" "+s.cover.Replace(resp.Status))
	s.traceHeaders(t, "<", resp.Header)
	said, err := io.ReadAll(io.LimitReader(resp.Body, answerMost))
	t.add("<", "\n"+s.cover.Replace(string(said)))
	if err != nil { // it may have been cut off before it said that something is wrong
		return fail("read the answer of", err)
	}
	return s.judge(t, resp, said)
}

// request writes what is sent.
func (s *gateway) request(ctx context.Context, m alerting.Message) (*http.Request, string, error) {
	address, err := render(s.address, m)
	if err != nil {
		return nil, "", err
	}
	if s.conf.Sign != "" {
		address = sign(address, s.conf.Secrets[s.conf.Sign], s.now())
	}
	body, err := render(s.body, m)
	if err != nil {
		return nil, "", err
	}
	req, err := http.NewRequestWithContext(ctx, s.conf.Method, address, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for name, h := range s.headers {
		value, err := render(h, m)
		if err != nil {
			return nil, "", err
		}
		req.Header.Set(name, value)
	}
	if body != "" {
		req.Header.Set("Content-Type", s.conf.ContentType)
	}
	if m.Key != "" {
		req.Header.Set("Idempotency-Key", url.PathEscape(m.Key)) // a key without odd characters stays as it is
	}
	return req, body, nil
}

// sign adds what DingTalk asks of robots whose security setting is a signature.
func sign(address, secret string, now time.Time) string {
	at := strconv.FormatInt(now.UnixMilli(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at + "\n" + secret))
	join := "?"
	if strings.Contains(address, "?") {
		join = "&"
	}
	return address + join + "timestamp=" + at + "&sign=" + url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// judge says what an answer means.
func (s *gateway) judge(t *trace, resp *http.Response, said []byte) error {
	because := ""
	if len(said) == answerMost {
		because = fmt.Sprintf(" (only the first %d bytes were read)", answerMost)
	}
	missing := unmet(s.conf.Success, resp.StatusCode, said)
	if missing == "" {
		if s.conf.ID != "" {
			id, _ := lookUp(said, s.conf.ID) // without one it has been sent all the same
			t.receipt = firstWords(s.cover.Replace(id))
		}
		return nil
	}
	status := firstWords(s.cover.Replace(resp.Status))
	text := fmt.Sprintf("%s answers %s, but %s%s: %s", s.conf.Name, status, missing, because, firstWords(s.cover.Replace(string(said))))
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		text = fmt.Sprintf("%s answers %s: redirects are not followed, set its url to where it is", s.conf.Name, status)
	}
	r := s.conf.Refusal
	value, _ := lookUp(said, r.Field)
	if slices.Contains(r.Status, resp.StatusCode) || r.Field != "" && slices.Contains(r.Equals, value) || r.Contains != "" && bytes.Contains(said, []byte(r.Contains)) {
		return &alerting.Refusal{Reason: text}
	}
	return errors.New(text)
}

// unmet says what of a success an answer does not show; "": it is one.
func unmet(a conf.Answer, status int, said []byte) string {
	if len(a.Status) == 0 && (status < 200 || status > 299) || len(a.Status) > 0 && !slices.Contains(a.Status, status) {
		return "this status is no success"
	}
	if a.Field != "" {
		value, ok := lookUp(said, a.Field)
		switch {
		case !ok:
			return "it has no field " + a.Field
		case !slices.Contains(a.Equals, value):
			return fmt.Sprintf("its field %s is no %s", a.Field, strings.Join(a.Equals, " or "))
		}
	}
	if !bytes.Contains(said, []byte(a.Contains)) {
		return fmt.Sprintf("it does not contain %q", a.Contains)
	}
	return ""
}

// lookUp finds a value in a JSON document, by the keys and indexes on the way to it: "data.ids.0".
func lookUp(document []byte, path string) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var v any
	if path == "" || d.Decode(&v) != nil {
		return "", false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", false // something follows: it is no JSON document
	}
	for _, step := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(x) {
				return "", false
			}
			v = x[i]
		default:
			return "", false
		}
	}
	switch x := v.(type) {
	case string:
		return x, true
	case json.Number:
		return x.String(), true
	case bool:
		return strconv.FormatBool(x), true
	}
	return "", false
}

// traceRequest notes what is sent. Behind the host's name an address is covered whole.
func (s *gateway) traceRequest(t *trace, req *http.Request, body string) {
	t.add(">", req.Method+" "+req.URL.Scheme+"://"+req.URL.Host+"/"+covered)
	s.traceHeaders(t, ">", req.Header)
	t.add(">", "\n"+s.cover.Replace(body))
}

func (s *gateway) traceHeaders(t *trace, mark string, headers http.Header) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			if secretHeader.MatchString(name) || name == "Location" { // a redirect may repeat our address
				value = covered
			}
			t.add(mark, name+": "+s.cover.Replace(value))
		}
	}
}
