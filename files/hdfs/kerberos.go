package hdfs

import (
	"strings"
	"sync"
	"time"

	krb "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"

	"capri"
)

// login is our Kerberos identity. Its ticket is renewed by the library; it is made anew each half day and after any
// failure to connect, so that neither an expired ticket nor a new keytab needs a restart.
type login struct {
	k Kerberos

	mu   sync.Mutex
	now  *krb.Client
	made time.Time
}

const loginFor = 12 * time.Hour

func (l *login) client() (*krb.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil && time.Since(l.made) < loginFor {
		return l.now, nil
	}
	conf, err := config.Load(l.k.Config)
	if err != nil {
		return nil, capri.Unavailable("read hdfs.kerberos_config %s: %v", l.k.Config, err)
	}
	key, err := keytab.Load(l.k.Keytab)
	if err != nil {
		return nil, capri.Unavailable("read hdfs.kerberos_keytab %s: %v", l.k.Keytab, err)
	}
	user, realm, _ := strings.Cut(l.k.Principal, "@")
	c := krb.NewWithKeytab(user, realm, key, conf, krb.DisablePAFXFAST(true))
	if err := c.Login(); err != nil {
		return nil, capri.Unavailable("log in to Kerberos as %s: %v", l.k.Principal, err)
	}
	// The one before is left to its connections; it ends with its ticket.
	l.now, l.made = c, time.Now()
	return c, nil
}

func (l *login) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = nil
}
