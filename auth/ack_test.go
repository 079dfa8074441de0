package auth_test

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/auth"
)

var (
	ackSecret = []byte("0123456789abcdef0123456789abcdef")
	ackUntil  = capri.InstantOf(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC))
)

func TestAnAckToken_gives_back_what_went_into_it(t *testing.T) {
	for _, person := range []string{"alice", "", "张伟", "a b&c=d/e+f", strings.Repeat("x", 190)} {
		for _, incident := range []int64{1, 42, math.MaxInt64} {
			token := auth.AckToken(ackSecret, incident, person, ackUntil)
			assert.NotContains(t, token, "=")
			assert.Equal(t, -1, strings.IndexFunc(token, func(r rune) bool {
				return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", r)
			}), "it stands in a link as it is: %s", token)
			i, p, err := auth.ParseAckToken(ackSecret, " "+token+"\n", ackUntil.Add(-time.Hour))
			require.NoError(t, err, "people copy it with what stands around it")
			assert.Equal(t, incident, i)
			assert.Equal(t, person, p)
		}
	}
}

func TestAnAckToken_is_good_until_its_time_and_no_longer(t *testing.T) {
	token := auth.AckToken(ackSecret, 7, "alice", ackUntil)
	_, _, err := auth.ParseAckToken(ackSecret, token, ackUntil)
	require.NoError(t, err)
	i, p, err := auth.ParseAckToken(ackSecret, token, ackUntil+1)
	require.ErrorIs(t, err, capri.ErrForbidden)
	assert.Contains(t, err.Error(), "too old: use capri alert ack")
	assert.Zero(t, i)
	assert.Empty(t, p)
}

func TestAnAckToken_of_which_one_byte_is_changed_is_none(t *testing.T) {
	// Names of three lengths, since the last letter holds 2, 4 or 6 bits.
	for _, person := range []string{"al", "ali", "alic"} {
		token := auth.AckToken(ackSecret, 7, person, ackUntil)
		for at := range len(token) {
			for _, letter := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=! " {
				changed := token[:at] + string(letter) + token[at+1:]
				if changed == token {
					continue
				}
				_, _, err := auth.ParseAckToken(ackSecret, changed, ackUntil)
				require.ErrorIs(t, err, capri.ErrForbidden, "letter %d of %s as %c", at, token, letter)
			}
		}
		for cut := 1; cut <= len(token); cut++ {
			for _, part := range []string{token[cut:], token[:len(token)-cut], token + token[:cut]} {
				_, _, err := auth.ParseAckToken(ackSecret, part, ackUntil)
				require.ErrorIs(t, err, capri.ErrForbidden, part)
			}
		}
	}
}

func TestAnAckToken_of_another_secret_or_of_none_is_none(t *testing.T) {
	token := auth.AckToken(ackSecret, 7, "alice", ackUntil)
	for _, secret := range [][]byte{nil, {}, []byte("another"), ackSecret[1:], append([]byte{0}, ackSecret...)} {
		_, _, err := auth.ParseAckToken(secret, token, ackUntil)
		require.ErrorIs(t, err, capri.ErrForbidden)
		if len(secret) == 0 { // nor may anybody make one where there is no secret
			_, _, err = auth.ParseAckToken(secret, auth.AckToken(secret, 7, "alice", ackUntil), ackUntil)
			require.ErrorIs(t, err, capri.ErrForbidden)
		}
	}
}

func FuzzParseAckToken(f *testing.F) {
	token := auth.AckToken(ackSecret, 7, "alice", ackUntil)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(f, err)
	for _, seed := range []string{"", " ", "A", "=", "\n", token, token[1:], token + "A", strings.ToUpper(token), base64.StdEncoding.EncodeToString(raw),
		base64.RawURLEncoding.EncodeToString(make([]byte, 48)), base64.RawURLEncoding.EncodeToString(raw[16:]), strings.Repeat("A", 5000), "\x00", "张伟"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		i, p, err := auth.ParseAckToken(ackSecret, text, ackUntil)
		if err != nil {
			require.ErrorIs(t, err, capri.ErrForbidden)
			require.Zero(t, i)
			require.Empty(t, p)
			return
		}
		// Nobody but us can make one: it is the one above.
		require.Equal(t, int64(7), i)
		require.Equal(t, "alice", p)
	})
}
