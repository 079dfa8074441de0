package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"capri"
)

// AckToken lets whoever has it acknowledge one incident in one person's name, until a time: it stands in the link of a
// message. Nothing is stored of it, and it is good for nothing else.
func AckToken(secret []byte, incident int64, person string, until capri.Instant) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(incident))
	text = binary.BigEndian.AppendUint64(text, uint64(until))
	text = append(text, person...)
	return base64.RawURLEncoding.EncodeToString(append(text, ackSum(secret, text)...))
}

func ackSum(secret, text []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("acknowledge\x00")) // never fails
	mac.Write(text)
	return mac.Sum(nil)
}

// ParseAckToken gives the incident and the person of a token. capri.ErrForbidden: it is none, or too old.
func ParseAckToken(secret []byte, token string, now capri.Instant) (incident int64, person string, err error) {
	text, decodeErr := base64.RawURLEncoding.Strict().DecodeString(strings.TrimSpace(token))
	at := len(text) - sha256.Size
	if decodeErr != nil || at < 16 || len(secret) == 0 || !hmac.Equal(text[at:], ackSum(secret, text[:at])) {
		return 0, "", capri.Forbidden("this link is not one of ours: copy it whole, or use capri alert ack")
	}
	if until := capri.Instant(binary.BigEndian.Uint64(text[8:16])); now > until {
		return 0, "", capri.Forbidden("this link is too old: use capri alert ack")
	}
	return int64(binary.BigEndian.Uint64(text[:8])), string(text[16:at]), nil
}
