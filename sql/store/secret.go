package store

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// leastSecret is a little less than what Capri makes: two times 130 bits.
const leastSecret = 32

// ClusterSecret is what the processes of one cluster share without anybody configuring it: they know it because they
// may read the database. Keys for talk between them are derived from it. It is made when it is first asked for.
func (s *Store) ClusterSecret(ctx context.Context) ([]byte, error) {
	if known := s.secret.Load(); known != nil {
		return *known, nil
	}
	const name = "cluster_secret"
	var secret string
	err := s.Write(ctx, "read the cluster's secret", "store", func(tx *Tx) error {
		found, err := one(tx.ctx, tx.tx, sq.Select("value").From("dic_data").Where(sq.Eq{"name": name}).Suffix(s.d.ForUpdate), &secret)
		if err != nil || found {
			return err
		}
		secret = rand.Text() + rand.Text()
		_, err = tx.exec(sq.Insert("dic_data").Columns("name", "value").Values(name, secret))
		if s.d.IsDuplicate(err) { // another process made it meanwhile
			_, err = one(tx.ctx, tx.tx, sq.Select("value").From("dic_data").Where(sq.Eq{"name": name}).Suffix(s.d.ForShare), &secret)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(secret) < leastSecret {
		return nil, capri.Invalid("cluster_secret", "", fmt.Sprintf("at least %d characters in this row of dic_data: somebody has set it. Delete the row while all processes are stopped, and Capri makes one", leastSecret))
	}
	known := []byte(secret)
	s.secret.Store(&known)
	return known, nil
}

// attemptPrefix begins the tokens of attempts; it is not that of an app's key.
const attemptPrefix = "capri_attempt_"

// AttemptToken is what a job shows when it speaks of its own attempt. Nothing is stored of it: it follows from the
// cluster's secret, which no job can read.
func AttemptToken(secret []byte, a capri.Attempt) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("attempt\x00" + a.String())) // never fails
	return attemptPrefix + a.String() + "_" + hex.EncodeToString(mac.Sum(nil))
}

// IsAttemptToken tells a job's token from an app's key; whether it is good is ParseAttemptToken's to say.
func IsAttemptToken(token string) bool { return strings.HasPrefix(token, attemptPrefix) }

// ParseAttemptToken gives the attempt that a token was made for; false: it was made with another secret, or by hand.
func ParseAttemptToken(secret []byte, token string) (a capri.Attempt, ok bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(token, attemptPrefix), "_")
	if _, err := fmt.Sscanf(text, "%d.%d", &a.Batch, &a.Number); err != nil || len(secret) == 0 {
		return capri.Attempt{}, false
	}
	if !hmac.Equal([]byte(token), []byte(AttemptToken(secret, a))) {
		return capri.Attempt{}, false
	}
	return a, true
}
