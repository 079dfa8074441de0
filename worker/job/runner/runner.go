package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"capri"
)

// Variable holds the Spec, as JSON.
const Variable = "CAPRI_JOB"

// Spec is what a runner is told: one of the two. During an upgrade the worker is older or newer than the program beside it,
// so fields are added and never change their meaning.
type Spec struct {
	HTTP   *Call   `json:"http,omitempty"`
	Client *Client `json:"client,omitempty"`
}

// Call is a job of type http, its times expanded.
type Call struct {
	URL    string            `json:"url"`
	HTTP   capri.HTTP        `json:"http"`
	Params map[string]string `json:"params,omitempty"`
	Allow  []string          `json:"allow,omitempty"` // networks that may be called although they are refused (worker.http_allow)
}

// Client is a job whose program has its work done elsewhere.
type Client struct {
	Argv   []string `json:"argv"`
	Remote string   `json:"remote"`           // a key of remotes: how ids look in what it says
	Kill   []string `json:"kill,omitempty"`   // the command that ends one; RemoteID stands for its id. Empty: there is none
	Former string   `json:"former,omitempty"` // what an earlier attempt of the batch had started last
}

// RemoteID stands in Client.Kill for the id of an application or query.
const RemoteID = "{id}"

// The exit codes that are not a client's.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 127
	exitTold     = 143 // as if SIGTERM had ended it
)

// Run does what Variable says until it is done or ctx ends, and gives the exit code. tell hears of what a client has started
// elsewhere, so that people find it beside the batch; it may take its time.
func Run(ctx context.Context, stdout, stderr io.Writer, tell func(id string)) int {
	var spec Spec
	err := json.Unmarshal([]byte(os.Getenv(Variable)), &spec)
	os.Unsetenv(Variable)
	switch {
	case err == nil && spec.HTTP != nil:
		return call(ctx, spec.HTTP, stdout, stderr)
	case err == nil && spec.Client != nil && len(spec.Client.Argv) > 0:
		return client(ctx, spec.Client, stdout, stderr, tell)
	}
	fmt.Fprintln(stderr, "capri job is started by workers, who tell it what to do in "+Variable)
	return exitUsage
}
