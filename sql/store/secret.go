package store

import (
	"context"
	"crypto/rand"

	sq "github.com/Masterminds/squirrel"
)

// ClusterSecret is what the processes of one cluster share without anybody configuring it: they know it because they
// may read the database. Keys for talk between them are derived from it. It is made when it is first asked for.
func (s *Store) ClusterSecret(ctx context.Context) ([]byte, error) {
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
	return []byte(secret), err
}
