package worker

import (
	"os"
	"path/filepath"
	"testing"
)

func newTestJobDirs(t *testing.T, most int) *jobDirs {
	d, err := OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return newJobDirs(d, most)
}

func makeJobDir(t *testing.T, d *jobDirs, name string) (string, bool) {
	t.Helper()
	dir, spare, err := d.make(name, os.Geteuid(), true)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(dir)
	if err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Fatalf("%s is %v (%v)", dir, info, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Fatalf("in %s there is %v (%v)", dir, entries, err)
	}
	return dir, spare
}

func TestA_directory_that_was_left_as_it_was_made_serves_the_next_job_of_the_account(t *testing.T) {
	for name, c := range map[string]struct {
		left  func(dir string) error
		owner int // of the next job
		most  int
		spare bool
	}{
		"empty":                {left: func(string) error { return nil }, owner: os.Geteuid(), most: 1, spare: true},
		"of another account":   {left: func(string) error { return nil }, owner: os.Geteuid() + 1, most: 1},
		"no room":              {left: func(string) error { return nil }, owner: os.Geteuid()},
		"with a file":          {left: func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), nil, 0o600) }, owner: os.Geteuid(), most: 1},
		"with a hidden tree":   {left: func(dir string) error { return os.MkdirAll(filepath.Join(dir, ".a", "b"), 0o500) }, owner: os.Geteuid(), most: 1},
		"open to others":       {left: func(dir string) error { return os.Chmod(dir, 0o777) }, owner: os.Geteuid(), most: 1},
		"removed by its job":   {left: os.Remove, owner: os.Geteuid(), most: 1},
		"replaced with a link": {left: func(dir string) error { os.Remove(dir); return os.Symlink("/tmp", dir) }, owner: os.Geteuid(), most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestJobDirs(t, c.most)
			dir, spare := makeJobDir(t, d, "1.1")
			if spare {
				t.Fatal("the first is a spare")
			}
			if err := c.left(dir); err != nil {
				t.Fatal(err)
			}
			if err := d.drop("1.1", os.Geteuid()); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Fatalf("%s is still there: %v", dir, err)
			}
			_, spare, err := d.make("2.1", c.owner, true)
			if err != nil {
				t.Fatal(err)
			}
			if spare != c.spare {
				t.Errorf("a spare: %v, want %v", spare, c.spare)
			}
		})
	}
}

func TestA_job_with_files_gets_a_directory_that_nobody_had(t *testing.T) {
	d := newTestJobDirs(t, 1)
	makeJobDir(t, d, "1.1")
	if err := d.drop("1.1", os.Geteuid()); err != nil {
		t.Fatal(err)
	}
	if _, spare, err := d.make("2.1", os.Geteuid(), false); spare || err != nil {
		t.Errorf("a spare: %v (%v)", spare, err)
	}
}

func TestA_directory_that_is_in_the_way_is_made_anew(t *testing.T) {
	for _, spares := range []int{0, 1} {
		d := newTestJobDirs(t, spares)
		makeJobDir(t, d, "1.1")
		if err := d.drop("1.1", os.Geteuid()); err != nil {
			t.Fatal(err)
		}
		stale := filepath.Join(d.directory.in(jobDir), "2.1")
		if err := os.MkdirAll(filepath.Join(stale, "of", "a", "dead", "process"), 0o700); err != nil {
			t.Fatal(err)
		}
		makeJobDir(t, d, "2.1")
	}
}
