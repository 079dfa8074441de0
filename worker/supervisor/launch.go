package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"capri"
	"capri/worker/shim"
)

// findShim gives the path of the shim's program.
func findShim(path string) (string, error) {
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the shim beside the running program: %w", err)
		}
		path = filepath.Join(filepath.Dir(self), shim.ProgramName)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the shim: %w", err)
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", capri.NotFound("the program %s is missing: it holds the running jobs; install %s beside capri, or configure its path",
			path, shim.ProgramName)
	}
	if err != nil {
		return "", fmt.Errorf("find the shim: %w", err)
	}
	if st.IsDir() || st.Mode()&0o111 == 0 {
		return "", capri.Invalid("shim", path, "a program that can be executed")
	}
	return path, nil
}

// launch starts a shim in a new directory and connects to it. The socket is made here and inherited, so the
// connection can be made before the shim has even begun.
//
// If we die in here, a shim that was started finds no worker and leaves, and the next Open clears its directory.
func (s *Supervisor) launch(ctx context.Context, number int) (*life, *call, error) {
	l := newLife(s, number)
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("start a shim: %w", err)
	}
	c, err := l.launch(ctx)
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(l.dir, shim.LogName))
		if tail := strings.TrimSpace(string(said)); tail != "" {
			err = fmt.Errorf("%w; it says: %s", err, tail[max(0, len(tail)-500):])
		}
		os.RemoveAll(l.dir)
		return nil, nil, fmt.Errorf("start the shim %s: %w", s.shimPath, err)
	}
	return l, c, nil
}

func (l *life) launch(ctx context.Context) (*call, error) {
	logFile, err := os.OpenFile(filepath.Join(l.dir, shim.LogName), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	listener, err := listen(l.dir)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	process, err := os.StartProcess(l.s.shimPath, append([]string{shim.ProgramName, l.dir}, l.s.shimArgs...), &os.ProcAttr{
		Dir:   "/",
		Env:   []string{}, // nothing of ours reaches a job by accident
		Files: []*os.File{null, logFile, logFile, shim.ListenerFD: listener},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // our terminal and our process group are not its own
	})
	if err != nil {
		return nil, err
	}
	pid := process.Pid
	process.Release()
	listener.Close() // or the socket would answer for a shim that died
	c, err := l.connect(ctx)
	if err != nil {
		syscall.Kill(pid, syscall.SIGKILL) // our child, not yet waited for: the number is its own
		reap(pid)
	}
	return c, err
}

// listen makes the socket in dir. A socket's address has 107 bytes at most, which a data directory may
// exceed, so the directory is named by its descriptor.
func listen(dir string) (*os.File, error) {
	var f *os.File
	err := inDir(dir, func(short string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(short, shim.SocketName), Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		defer l.Close()
		if err := os.Chmod(filepath.Join(dir, shim.SocketName), 0o600); err != nil {
			return err
		}
		f, err = l.File()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the shim's socket: %w", err)
	}
	return f, nil
}

// inDir calls f with a short name of dir.
func inDir(dir string, f func(short string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d", d.Fd()))
}

// reap waits for a dead child; of somebody else's child there is nothing to wait for.
func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}
