package auth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"capri"
	"capri/sql/store"
)

// AdminApp is the app whose key lies in the data directory of a standalone Capri.
const AdminApp = "admin"

// AdminKeyFile is where that key lies.
func AdminKeyFile(dir string) string { return filepath.Join(dir, "admin.key") }

// Who makes the first key, as its credential says.
const (
	byStandalone = "standalone"
	byMaster     = "master"
)

// EnsureAdminKey makes the first app of a standalone Capri, so that its owner has a key without asking
// anybody: DIR/admin.key, readable by its owner alone. Whoever can read the data directory can read the
// database, so the file gives away nothing that is not given already.
//
//	file   row        then
//	no     no         first start: make a key, write the file, then the row
//	yes    no         a new database, or a crash in between: the row is made for the file's key
//	yes    other key  the database was restored or replaced: the file's key becomes the app's
//	no     yes        the file was lost: a new key for both; the old one ends
//	yes    same       nothing to do
//
// Where a person has given the app another key (capri app rotate) the file is left alone, and what it holds opens nothing: a key
// that was taken out of use must not come back with a restart.
//
// An app `admin` that somebody disabled, or gave another role, stays so: that was a decision, not damage. It
// reports whether a new key was made.
func EnsureAdminKey(ctx context.Context, s *store.Store, dir string) (made bool, err error) {
	keys, err := s.Credentials(ctx, store.AppKey, AdminApp)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(keys, func(c store.Credential) bool {
		return c.CreatedBy != "" && c.CreatedBy != byStandalone && c.CreatedBy != byMaster
	}) {
		return false, nil
	}
	key, err := ReadKey(AdminKeyFile(dir))
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		key = NewKey()
		// The file comes first: a key in the file without a row is repaired at the next start, a row whose key
		// nobody has would need to be replaced.
		if err := writeNew(AdminKeyFile(dir), key); errors.Is(err, fs.ErrExist) {
			// Somebody else started at the same moment and was first; its key counts.
			if key, err = ReadKey(AdminKeyFile(dir)); err != nil {
				return false, err
			}
		} else if err != nil {
			return false, err
		} else {
			made = true
		}
	default:
		return false, err
	}

	if app, err := s.AppByKeyHash(ctx, Hash(key)); err == nil {
		if app.Name != AdminApp {
			return made, fmt.Errorf("%s holds the key of the app %s: remove the file, and start again", AdminKeyFile(dir), app.Name)
		}
		return made, nil
	} else if !errors.Is(err, capri.ErrNotFound) {
		return made, err
	}
	admin := store.App{Name: AdminApp, Role: string(SuperAdmin), Enabled: true}
	apps, err := s.Apps(ctx)
	if err != nil {
		return made, err
	}
	for _, a := range apps {
		if a.Name == AdminApp {
			admin = a // keeps the role, and whether it is enabled
		}
	}
	return made, s.Write(ctx, "make the admin app", byStandalone, func(tx *store.Tx) error {
		if err := tx.SaveApp(admin, Hash(key)); err != nil {
			return err
		}
		return tx.LogAction("app_key", AdminApp, "key taken from the data directory")
	})
}

// FirstKey makes the first app of a cluster, as EnsureAdminKey does for a standalone Capri: nobody could make one without a
// key, and once there is one people make the others. Of masters that start at once one makes it; the others leave no
// file behind, whose key would be nobody's.
func FirstKey(ctx context.Context, s *store.Store, dir string) (made bool, err error) {
	if apps, err := s.Apps(ctx); err != nil || len(apps) > 0 {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("make the data directory: %w", err)
	}
	key, ours := NewKey(), true
	switch err := writeNew(AdminKeyFile(dir), key); {
	case errors.Is(err, fs.ErrExist): // of an older database, or a start that died here
		if key, err = ReadKey(AdminKeyFile(dir)); err != nil {
			return false, err
		}
		ours = false
	case err != nil:
		return false, err
	}
	err = s.Write(ctx, "make the first app", byMaster, func(tx *store.Tx) error {
		if made, err = tx.FirstApp(store.App{Name: AdminApp, Role: string(SuperAdmin), Enabled: true}, Hash(key)); err != nil || !made {
			return err
		}
		return tx.LogAction("app_key", AdminApp, "key taken from the data directory")
	})
	if err == nil && !made && ours {
		err = os.Remove(AdminKeyFile(dir))
	}
	return made, err
}

// leastKey is how many characters a key has behind its prefix: those of 256 bits.
const leastKey = 43

// ReadKey reads a key from a file.
func ReadKey(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(data))
	if !strings.HasPrefix(key, keyPrefix) || strings.ContainsAny(key, " \t\r\n") {
		return "", fmt.Errorf("%s does not hold an app key (%s…)", file, keyPrefix)
	}
	if len(key) < len(keyPrefix)+leastKey {
		return "", fmt.Errorf("%s holds a key of less than %d characters: remove the file, and Capri makes one", file, leastKey)
	}
	return key, nil
}

// writeNew writes a file that must not exist yet, whole or not at all: the bytes are on the disk before the
// name is, so that a crash leaves no empty key behind. Link fails where the name exists, as O_EXCL does.
func writeNew(file, key string) error {
	if _, err := os.Lstat(file); err == nil {
		return fs.ErrExist
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".admin.key-*") // O_EXCL and 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(key + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Link(tmp.Name(), file)
	}
	if errors.Is(err, fs.ErrExist) {
		return fs.ErrExist
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
