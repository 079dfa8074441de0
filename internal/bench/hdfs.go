package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	lib "github.com/colinmarc/hdfs/v2"

	"capri"
	"capri/conf"
	"capri/files/hdfs"
)

// What the HDFS figures look at: so many paths, spread over so many directories, of which each has what a directory has
// while its day goes on: two that are done and one that is being written.
const (
	hdfsDirs  = 1000
	hdfsPaths = 100
	hdfsDone  = 2
	hdfsBegun = 1
)

// hdfs measures one round of looking at 100,000 paths of a real name-node, against listing each of their directories once.
func (b *Bench) hdfs(ctx context.Context) error {
	const connections = 4
	root := fmt.Sprintf("/capri-bench/%d", time.Now().UnixNano())
	clients := make([]*lib.Client, connections)
	for i := range clients {
		c, err := lib.NewClient(lib.ClientOptions{Addresses: []string{b.HDFS}, User: "root"})
		if err != nil {
			return err
		}
		defer c.Close()
		clients[i] = c
	}
	defer clients[0].RemoveAll(root)
	everyDir := func(f func(c *lib.Client, dir string) error) error {
		errs := make([]error, connections)
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() {
				for d := i; d < hdfsDirs && errs[i] == nil && ctx.Err() == nil; d += connections {
					errs[i] = f(c, fmt.Sprintf("%s/d%04d", root, d))
				}
			})
		}
		wg.Wait()
		return errors.Join(errors.Join(errs...), ctx.Err())
	}
	if err := everyDir(func(c *lib.Client, dir string) error {
		for p := range hdfsDone + hdfsBegun {
			path := fmt.Sprintf("%s/p%02d", dir, p)
			if err := c.MkdirAll(path, 0o755); err != nil {
				return err
			}
			if p < hdfsDone {
				if err := c.CreateEmptyFile(path + "/_SUCCESS"); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	var paths []capri.PathCondition
	for d := range hdfsDirs {
		for p := range hdfsPaths {
			paths = append(paths, capri.PathCondition{Path: fmt.Sprintf("hdfs://bench%s/d%04d/p%02d", root, d, p), Flag: "_SUCCESS"})
		}
	}
	look := func(address string) (time.Duration, error) {
		h := hdfs.New(hdfs.Options{NameServices: []conf.NameService{{Name: "bench", NameNodes: []string{address}}}, Connections: connections, Round: 10 * time.Minute, User: "root"})
		defer h.Close()
		began := time.Now()
		there, err := h.There(ctx, paths)
		took := time.Since(began)
		n := 0
		for _, yes := range there {
			if yes {
				n++
			}
		}
		if err == nil && n != hdfsDirs*hdfsDone {
			err = fmt.Errorf("%d paths are there, want %d", n, hdfsDirs*hdfsDone)
		}
		return took, err
	}
	var ours, limit []time.Duration
	for range b.Runs {
		took, err := look(b.HDFS)
		if err != nil {
			return err
		}
		ours = append(ours, took)
		began := time.Now()
		if err := everyDir(func(c *lib.Client, dir string) error {
			list, err := c.ReadDir(dir)
			if err == nil && len(list) != hdfsDone+hdfsBegun {
				err = fmt.Errorf("%s has %d names", dir, len(list))
			}
			return err
		}); err != nil {
			return err
		}
		limit = append(limit, time.Since(began))
	}
	counted, err := newCounter(b.HDFS)
	if err != nil {
		return err
	}
	defer counted.close()
	if _, err := look(counted.address); err != nil {
		return err
	}
	questions := float64(counted.questions.Load())
	b.note("%d paths in %d directories, of each %d done and %d begun; limit: a listing of each directory, %d connections too", len(paths), hdfsDirs, hdfsDone, hdfsBegun, connections)
	b.note("questions: %.0f; one by one %d", questions, len(paths))
	b.atMost("hdfs/100000_paths", median(ours).Seconds(), median(limit).Seconds(), "s", 10)
	b.atMost("hdfs/100000_paths_questions", questions, hdfsDirs, "questions", 6)
	return nil
}

// counter stands before a name-node and counts what is asked. It is not used where time is measured.
type counter struct {
	address   string
	questions atomic.Int64
	listener  net.Listener
}

func newCounter(to string) (*counter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{address: l.Addr().String(), listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go c.carry(in, to)
		}
	}()
	return c, nil
}

func (c *counter) close() { c.listener.Close() }

func (c *counter) carry(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		io.Copy(in, out) // it ends with either side
		in.Close()
	}()
	// Seven bytes that begin a connection, then frames, each behind its length; the first says who we are.
	if _, err := io.CopyN(out, in, 7); err != nil {
		return
	}
	for n := int64(-1); ; n++ {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
		copy(frame, size[:])
		if _, err := io.ReadFull(in, frame[4:]); err != nil {
			return
		}
		if n >= 0 {
			c.questions.Add(1)
		}
		if _, err := out.Write(frame); err != nil {
			return
		}
	}
}
