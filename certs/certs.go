// Package certs makes TLS configurations of certificate files: for what we connect to (Client) and for what listens here
// (Server). TLS 1.2 is the least that either speaks.
//
//	Client   the files are read once; its own certificate again at each handshake
//	Server   certificate, key and client CA are looked at again while it runs: who renews them need not restart anything
//
// Key files are read and never shown: an error names the file and what is wrong with it.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"capri"
)

// System stands for the certificate authorities that this machine trusts, in place of a file.
const System = "system"

// Files name what one side has.
type Files struct {
	Field      string // what they are called in messages: database.tls; empty: the flags of the command line
	CA         string // who may have signed the other side's certificate; System; empty: no TLS
	Cert, Key  string // our own; empty: none is shown
	ServerName string // whom the other side's certificate has to name, where that is not the host we connect to
}

// Client makes the configuration of a client; nil where there is to be no TLS.
func Client(f Files) (*tls.Config, error) {
	if f.CA == "" {
		return nil, nil //nolint:nilnil // no TLS is a valid choice
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	var err error
	if f.CA != System {
		if c.RootCAs, err = pool(f.named("ca"), f.CA); err != nil {
			return nil, err
		}
	}
	if f.Cert != "" {
		if _, err := pair(f.named("cert"), f.Cert, f.named("key"), f.Key); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair(f.named("cert"), f.Cert, f.named("key"), f.Key)
		}
	}
	return c, nil
}

// named is what people call one of the files.
func (f Files) named(key string) string {
	if f.Field == "" {
		return map[string]string{"ca": "--cacert", "cert": "--cert", "key": "--cert-key"}[key]
	}
	return f.Field + "." + key
}

func pool(field, file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, capri.Invalid(field, file, "a file that can be read: "+reason(err))
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(data) {
		return nil, capri.Invalid(field, file, "a file with certificates (-----BEGIN CERTIFICATE-----)")
	}
	return p, nil
}

func pair(certField, cert, keyField, key string) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(cert, key)
	if err == nil {
		return &c, nil
	}
	var pe *os.PathError
	switch {
	case errors.As(err, &pe) && pe.Path == key:
		return nil, capri.Invalid(keyField, key, "a file that can be read: "+reason(err))
	case errors.As(err, &pe):
		return nil, capri.Invalid(certField, cert, "a file that can be read: "+reason(err))
	}
	return nil, capri.Invalid(certField, cert, "a certificate, and its key in "+keyField+": "+strings.TrimPrefix(err.Error(), "tls: "))
}

// reason cuts the file's name off an error of package os: the message names it already.
func reason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// ServerFiles name what a listener has: tls.cert, tls.key, tls.client_ca.
type ServerFiles struct{ Cert, Key, ClientCA string }

// lookEvery is how often the files are looked at, at most: at a handshake, so that an idle server does nothing.
const lookEvery = time.Second

// Server is a listener's certificate, as the files have it now.
type Server struct {
	f   ServerFiles
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	looked  time.Time
	seen    string // of the files, when they were read
	current *tls.Config
}

// NewServer reads the files, which have to be right at the start. Later ones that are not (a key that does not belong to
// the certificate yet) are logged, and those before them stay.
func NewServer(f ServerFiles, log *slog.Logger) (*Server, error) {
	s := &Server{f: f, log: log, now: time.Now}
	seen := s.look()
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	s.current, s.seen, s.looked = c, seen, s.now()
	return s, nil
}

// Config is for http.Server.TLSConfig.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Also without a name from the client: what it gets is of the files in any case.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.present(), nil },
		GetCertificate:     func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.present().Certificates[0], nil },
	}
}

// Name is a host that the certificate is for; empty: it names none but by a pattern.
func (s *Server) Name() string {
	leaf := s.present().Certificates[0].Leaf
	for _, name := range leaf.DNSNames {
		if !strings.Contains(name, "*") {
			return name
		}
	}
	for _, ip := range leaf.IPAddresses {
		return ip.String()
	}
	return ""
}

// IsFor reports whether the certificate is good for a host, a name or an IP address.
func (s *Server) IsFor(host string) bool {
	return s.present().Certificates[0].Leaf.VerifyHostname(host) == nil
}

// present is the configuration by the files as they are now.
func (s *Server) present() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Sub(s.looked) < lookEvery {
		return s.current
	}
	s.looked = s.now()
	seen := s.look()
	if seen == s.seen {
		return s.current
	}
	s.seen = seen // a pair that is wrong is said once, and read again when it changes
	c, err := s.read()
	if err != nil {
		s.log.Error("the new certificate cannot be used; the one before stays", "err", err)
		return s.current
	}
	s.current = c
	s.log.Info("the certificate was read again", "until", c.Certificates[0].Leaf.NotAfter)
	return c
}

// look tells the files apart from what they were before.
func (s *Server) look() string {
	var b strings.Builder
	for _, file := range []string{s.f.Cert, s.f.Key, s.f.ClientCA} {
		if file == "" {
			continue
		}
		info, err := os.Stat(file) // through links: Kubernetes swaps one
		if err != nil {
			fmt.Fprintf(&b, "%v;", err)
			continue
		}
		fmt.Fprintf(&b, "%d %d;", info.ModTime().UnixNano(), info.Size())
	}
	return b.String()
}

func (s *Server) read() (*tls.Config, error) {
	cert, err := pair("tls.cert", s.f.Cert, "tls.key", s.f.Key)
	if err != nil {
		return nil, err
	}
	if cert.Leaf == nil {
		return nil, capri.Invalid("tls.cert", s.f.Cert, "a certificate that can be read")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{*cert}}
	if s.f.ClientCA != "" {
		if c.ClientCAs, err = pool("tls.client_ca", s.f.ClientCA); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}
