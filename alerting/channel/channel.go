// Package channel sends messages: mails by SMTP, everything else by HTTP, as the configuration describes it.
//
//	alerting.Message ─┬─ mail: composed, delivered by SMTP ──────────────────┬─▶ nil: somebody else has taken it
//	                  └─ gateway: address, headers and body from templates, ─┼─▶ *alerting.Refusal: for good
//	                     called by HTTP (SMS, phone, webhooks)               └─▶ any other error: try it again
//
// FromConfig makes the senders. A sender sends once, within its time limit; queues, further tries and rates are for
// who calls it, by LimitsFromConfig.
//
// Nothing of a message can leave its place: addresses are checked, headers are single lines, and each value in an
// address or a body of a gateway has passed the function that escapes for it (templates.go). Nothing secret comes out:
// errors and conversations are covered (trace.go).
package channel

import (
	"fmt"
	"path/filepath"
	"time"

	"capri"
	"capri/alerting"
	"capri/conf"
)

// FromConfig makes the senders that c describes: alerting.Mail, alerting.SMS, alerting.Phone, and the names of
// webhooks. What is not configured is absent. Everything that is wrong is said at once.
func FromConfig(c *conf.Config) (map[string]alerting.Sender, error) {
	senders := map[string]alerting.Sender{}
	if a := c.Alerting; a.MailServer != "" {
		senders[alerting.Mail] = &mailer{from: a.MailFrom, limit: a.MailTimeout, now: time.Now,
			smtp: SMTP{Address: a.MailServer, TLS: a.MailTLS, User: a.MailUser, Password: a.MailPassword}}
	}
	var wrong capri.FieldErrors
	for i, g := range c.Gateways {
		s, faults := newGateway(g)
		for _, f := range faults {
			f.Field, f.Where = fmt.Sprintf("gateways[%d].%s", i, f.Field), filepath.ToSlash(c.Alerting.GatewaysFile)
			wrong = append(wrong, f)
		}
		senders[g.Name] = s
	}
	if err := wrong.OrNil(); err != nil {
		return nil, err
	}
	return senders, nil
}

// LimitsFromConfig gives the limits of each sender that FromConfig makes.
func LimitsFromConfig(c *conf.Config) map[string]conf.Limits {
	limits := map[string]conf.Limits{}
	if a := c.Alerting; a.MailServer != "" {
		limits[alerting.Mail] = conf.Limits{Timeout: a.MailTimeout, Tries: a.MailTries, Parallel: a.MailParallel, PerMinute: a.MailPerMinute}
	}
	for _, g := range c.Gateways {
		limits[g.Name] = g.Limits
	}
	return limits
}
