package worker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"capri"
	"capri/sql/store"
	"capri/worker/logs"
)

// Logs travel from a node to whoever serves them (the API of a master) by one request:
//
//	GET /logs/{batch}/{attempt}/{out|err}?task=NAME&offset=N&limit=N      Authorization: Bearer <token of the node>
//
// The answer's body is the bytes; the headers below carry the rest. The token follows from a secret that the
// cluster's processes share (they read it from the database), and from the node's name, so that a node that is
// taken over can say nothing in another's name.
const (
	headerNext     = "Capri-Log-Next"
	headerComplete = "Capri-Log-Complete"
)

// LogToken is the bearer token for one node's logs.
func LogToken(secret []byte, node string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("logs\x00" + node)) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// LogHandler serves this node's logs to holders of its token. Without Options.Secret it refuses everybody.
func (w *Worker) LogHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /logs/{batch}/{attempt}/{stream}", func(rw http.ResponseWriter, r *http.Request) {
		want := "Bearer " + LogToken(w.o.Secret, w.node)
		// hmac.Equal takes the same time wherever the two differ.
		if len(w.o.Secret) == 0 || !hmac.Equal([]byte(r.Header.Get("Authorization")), []byte(want)) {
			http.Error(rw, "this needs the node's token", http.StatusUnauthorized)
			return
		}
		q := r.URL.Query()
		batch, err1 := strconv.ParseInt(r.PathValue("batch"), 10, 64)
		number, err2 := strconv.Atoi(r.PathValue("attempt"))
		offset, err3 := number64(q.Get("offset"))
		limit, err4 := number64(q.Get("limit"))
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		a := capri.Attempt{Batch: capri.BatchID(batch), Number: number}
		data, next, complete, err := w.readLog(q.Get("task"), a, logs.Stream(r.PathValue("stream")), offset, int(min(limit, logs.MaxLimit)))
		switch {
		case errors.Is(err, capri.ErrNotFound):
			http.Error(rw, err.Error(), http.StatusNotFound)
			return
		case errors.Is(err, capri.ErrInvalid):
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		case err != nil:
			w.log.Error("read a log", "attempt", a.String(), "err", err)
			http.Error(rw, "the log could not be read", http.StatusInternalServerError)
			return
		}
		rw.Header().Set("Content-Type", "application/octet-stream")
		rw.Header().Set("X-Content-Type-Options", "nosniff")
		rw.Header().Set(headerNext, strconv.FormatInt(next, 10))
		rw.Header().Set(headerComplete, strconv.FormatBool(complete))
		rw.Write(data) //nolint:errcheck,gosec // the reader has gone; and no browser takes these bytes for a page, see the two headers
	})
	return mux
}

func number64(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

// RemoteLogs reads logs from other nodes' LogHandlers.
type RemoteLogs struct {
	// Node tells where a node is: store.Store.Nodes has it.
	Node   func(ctx context.Context, name string) (capri.Node, error)
	Secret []byte
	TLS    *tls.Config // how they are reached over TLS, each by a certificate that names the node; nil: in plain HTTP
}

const remoteTimeout = 10 * time.Second

var remoteClient = &http.Client{Timeout: remoteTimeout}

// client is for one request over TLS, or for any in plain HTTP.
func (r *RemoteLogs) client(node string) (scheme string, client *http.Client) {
	if r.TLS == nil {
		return "http", remoteClient
	}
	named := r.TLS.Clone()
	named.ServerName = node // whatever its address is
	return "https", &http.Client{Timeout: remoteTimeout, Transport: &http.Transport{TLSClientConfig: named, DisableKeepAlives: true}}
}

// ReadLog is Worker.ReadLog over the network; node is where the attempt ran (store.Event has it for each attempt).
func (r *RemoteLogs) ReadLog(ctx context.Context, node string, batch store.BatchRow, attempt int, stderr bool, offset int64, limit int) (data []byte, next int64, complete bool, err error) {
	n, err := r.Node(ctx, node)
	if err != nil {
		return nil, 0, false, err
	}
	if n.Port == 0 || n.IP == "" {
		return nil, 0, false, capri.Unavailable("node %s serves no logs", node)
	}
	stream := logs.Out
	if stderr {
		stream = logs.Err
	}
	scheme, client := r.client(node)
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(n.IP, strconv.Itoa(n.Port)), Path: fmt.Sprintf("/logs/%d/%d/%s", batch.ID, attempt, stream),
		RawQuery: url.Values{"task": {batch.Task}, "offset": {strconv.FormatInt(offset, 10)}, "limit": {strconv.Itoa(limit)}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, 0, false, fmt.Errorf("read a log of node %s: %w", node, err)
	}
	req.Header.Set("Authorization", "Bearer "+LogToken(r.Secret, node))
	answer, err := client.Do(req)
	if err != nil {
		return nil, 0, false, capri.Unavailable("node %s does not answer: %v", node, errors.Unwrap(err))
	}
	defer answer.Body.Close()
	data, err = io.ReadAll(io.LimitReader(answer.Body, logs.MaxLimit))
	if err != nil {
		return nil, 0, false, capri.Unavailable("node %s broke off its answer: %v", node, err)
	}
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, 0, false, capri.NotFound("%s", strings.TrimSpace(string(data)))
	case http.StatusBadRequest:
		if r.TLS == nil && strings.Contains(string(data), "HTTPS server") {
			return nil, 0, false, capri.Unavailable("node %s gives its logs over TLS alone: set tls.ca here, too", node)
		}
		return nil, 0, false, fmt.Errorf("node %s answers %s: %s", node, answer.Status, strings.TrimSpace(string(data)))
	case http.StatusUnauthorized:
		return nil, 0, false, capri.Forbidden("node %s refuses us its logs: do both use the same database?", node)
	default:
		return nil, 0, false, fmt.Errorf("node %s answers %s: %s", node, answer.Status, strings.TrimSpace(string(data)))
	}
	if next, err = strconv.ParseInt(answer.Header.Get(headerNext), 10, 64); err != nil {
		return nil, 0, false, fmt.Errorf("node %s answers without %s", node, headerNext)
	}
	return data, next, answer.Header.Get(headerComplete) == "true", nil
}
