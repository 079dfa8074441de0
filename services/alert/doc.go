// Package alert brings alerts to people: it puts those of one cause into one incident, finds who is to be told, and sends
// the messages.
//
//	new alerts ──Filing──▶ incident ──▶ messages that are due ──Sending, a row for each channel──▶ sent
//	                         │  ▲                                                               ├▶ tried again, 3 times
//	       repeats, escalation┘  └ later alerts of the cause attach                              └▶ given up, or too old: accounted for
//
// It promises that each alert is in one incident, that each message goes out at least once or is accounted for, always under
// the same key, and that a channel that is slow or down holds up no other. Everything that is known stands in the
// database: a new leader goes on where the last one stopped.
package alert
