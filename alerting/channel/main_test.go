package channel

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"capri"
	"capri/alerting"
	"capri/conf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// told is what tests send.
var told = alerting.Message{Key: "17-mail-3", Incident: 17, To: "li.lei@example.org", Name: "李雷", Level: capri.Severe, Stage: alerting.New,
	Subject: "[severe] dwd_orders 数据产出超时：批次 20261119 未在 08:00 之前完成，37 个批次在等待它",
	Text:    "dwd_orders 已超时\n.\n..two dots\nfin", HTML: "<p>dwd_orders <b>已超时</b></p>", Link: "https://capri.example.org/i/17"}

// certificate is one for 127.0.0.1, and who vouches for it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return srv.TLS.Certificates[0], roots
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// configured loads a configuration with these gateways.
func configured(t *testing.T, gateways string) (*conf.Config, map[string]alerting.Sender, error) {
	t.Helper()
	c, err := conf.Load("none", false, map[string]string{"alerting.gateways_file": file(t, gateways)})
	require.NoError(t, err)
	senders, err := FromConfig(c)
	return c, senders, err
}
