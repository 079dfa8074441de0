// Package alerting is how an alert of the outbox reaches people.
//
//	alert (sql/store, written with what caused it)
//	  │ services/alert
//	  ▼
//	incident: alerts of one cause ─▶ route: who, by which channel, by which rule ─▶ delivery: one message to one address
//	                                    │ duty: who is on duty now                     │ words: what it says
//	                                    ▼                                              ▼
//	                                 people                                         channel: mail, SMS, phone, webhooks
//
// The packages below do one step each and know nothing of the others: route and duty decide and do no I/O, words writes
// texts, channel sends. services/alert puts them together and keeps the account.
package alerting
