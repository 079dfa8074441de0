package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"
)

// teller tells the server which application the job has started, so that people find it beside the batch. The log has it
// as well, so what cannot be told within a minute is let go. Nil where there is no server, or no token to show it.
func teller(ctx context.Context) func(id string) {
	server, token := os.Getenv("CAPRI_SERVER"), os.Getenv("CAPRI_ATTEMPT_TOKEN")
	if server == "" || token == "" {
		return nil
	}
	address := strings.TrimRight(server, "/") + "/api/v1/attempt/application"
	return func(id string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for pause := time.Second; !told(ctx, address, token, id); pause *= 2 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}

// told makes one call; true: there is no use in another.
func told(ctx context.Context, address, token, id string) bool {
	body, err := json.Marshal(map[string]string{"id": id})
	if err != nil {
		return true
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body)) //nolint:gosec // the worker has put that address there
	if err != nil {
		return true
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(req) //nolint:gosec // the same
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode < 500
}
