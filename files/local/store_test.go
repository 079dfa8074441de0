package local

import (
	"os"
	"path/filepath"
	"testing"

	"capri/files"
	"capri/files/filestest"
)

func TestStore_contract(t *testing.T) {
	filestest.RunStore(t, func(t *testing.T) files.Store { return Store(filepath.Join(t.TempDir(), "not", "yet")) })
}

func TestStores_follow_no_link_and_wait_for_no_pipe(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "way")); err != nil {
		t.Fatal(err)
	}
	s := Store(dir)
	for _, name := range []string{"link", "way/outside"} {
		if _, err := s.ReadAt(t.Context(), name, 0, make([]byte, 10)); err == nil {
			t.Errorf("%s was read", name)
		}
		for _, size := range []int64{0, 6} {
			if err := s.Append(t.Context(), name, size, []byte("x")); err == nil {
				t.Errorf("%s was written to", name)
			}
		}
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "secret" {
		t.Errorf("outside is %q, %v", b, err)
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), "a/b", 0, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(filepath.Join(dir, "a/b")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file of the store: %v, %v", info.Mode(), err)
	}
}
