package dialect

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// CheckDSN asks the driver, and for a database's name, without which the first statement would fail.
func CheckDSN(dsn string) error {
	m, err := mysql.ParseDSN(dsn)
	if err == nil && m.DBName == "" {
		return errors.New("no database is named")
	}
	return err
}

// WithPassword puts the password of a password file into the DSN.
func WithPassword(dsn, password string) (string, error) {
	m, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", errors.New("a database.dsn that can be read")
	}
	if m.Passwd != "" {
		return "", errors.New("either a password in database.dsn or a file, not both")
	}
	m.Passwd = password
	return m.FormatDSN(), nil
}
