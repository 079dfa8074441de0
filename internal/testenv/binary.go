package testenv

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// built holds, by name, the one build of this test process.
var built sync.Map // name → func() (string, error)

// Binary returns the path of the real program cmd/NAME, built as it ships (no cgo, no race detector), once per test
// process. "capri" brings "capri-shim" along in the same folder, where it looks for it.
//
// The binaries lie in one folder per user and checkout under the system's temporary folder. It stays, so that the
// next test process finds them current and links nothing.
func Binary(t testing.TB, name string) string {
	t.Helper()
	root := Root(t)
	build, _ := built.LoadOrStore(name, sync.OnceValues(func() (string, error) { return buildBinary(root, name) }))
	path, err := build.(func() (string, error))()
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return path
}

func buildBinary(root, name string) (string, error) {
	if err := touchSources(root); err != nil {
		return "", err
	}
	dir, err := binaryDir(root)
	if err != nil {
		return "", err
	}
	// go test runs packages at once; two of them must not write one file.
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	args := []string{"build", "-race=false", "-trimpath", "-o", dir + string(filepath.Separator), "./cmd/" + name}
	if name == "capri" {
		args = append(args, "./cmd/capri-shim")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return filepath.Join(dir, name), nil
}

// binaryDir makes the folder of the binaries. Jobs run under other accounts and call the program too, so everybody
// may read it; only we may write to it.
func binaryDir(root string) (string, error) {
	h := fnv.New32a()
	h.Write([]byte(root))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("capri-testenv-%d-%08x", os.Getuid(), h.Sum32()))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a folder of ours that only we may write to: remove it", dir)
	}
	return dir, os.Chmod(dir, 0o755) // whatever the umask said
}

// touchSources lists every folder of the module. A test that only runs the binary imports none of its packages, so
// go test would call an old result current after the program has changed; but it does note which folders a test
// listed, and compares sizes and times of what is in them.
func touchSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root {
			switch name := d.Name(); {
			case strings.HasPrefix(name, "."), strings.HasPrefix(name, "capri-data"),
				name == "bin", name == "dist", name == "node_modules", name == "testdata":
				return fs.SkipDir
			}
		}
		return nil
	})
}
