package hdfs

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"capri"
	"capri/conf"
	"capri/internal/testenv"
)

// standby is a name-node that answers the first question of each connection as one on standby does.
func standby(t *testing.T) (address string, asked *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = &atomic.Int32{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				frame := func() error { // they come behind their length
					var size [4]byte
					if _, err := io.ReadFull(c, size[:]); err != nil {
						return err
					}
					_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:])))
					return err
				}
				if _, err := io.CopyN(io.Discard, c, 7); err != nil { // what begins a connection
					return
				}
				for range 2 { // who it is, and the question
					if frame() != nil {
						return
					}
				}
				asked.Add(1)
				header := []byte{0x08, 1, 0x10, 1} // the first call, and an error
				for field, text := range map[byte]string{0x22: exceptionStandby, 0x2a: "Operation category READ is not supported in state standby"} {
					header = append(append(header, field, byte(len(text))), text...)
				}
				header = append(header, 0x30, 1) // of the application
				answer := binary.BigEndian.AppendUint32(nil, uint32(len(header)+1+len(header)/128))
				answer = append(binary.AppendUvarint(answer, uint64(len(header))), header...)
				c.Write(answer)
				io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String(), asked
}

func TestName_nodes_that_are_all_on_standby_are_told_as_such(t *testing.T) {
	first, _ := standby(t)
	second, _ := standby(t)
	h := New(Options{NameServices: []conf.NameService{{Name: "test", NameNodes: []string{first, second}}}})
	defer h.Close()
	unseen(t, h, manyPaths(20), "none of its name-nodes is active")
	for _, one := range h.Check(t.Context()) {
		if one.Active || one.Err != nil {
			t.Errorf("%s is told as %+v, want it on standby", one.NameNode, one)
		}
	}
}

func TestThe_active_name_node_is_found_and_then_asked_first(t *testing.T) {
	address := testenv.HDFS(t)
	_, here, absent := real(t)
	waiting, asked := standby(t)
	h := New(Options{NameServices: []conf.NameService{{Name: "test", NameNodes: []string{waiting, address}}}, Connections: 1})
	defer h.Close()
	for range 3 {
		there, err := h.There(t.Context(), []capri.PathCondition{here, absent})
		if err != nil || !there[0] || there[1] {
			t.Fatalf("answered %v, %v", there, err)
		}
		h.Close() // so that the next is connected anew
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the one on standby was asked %d times, want once", n)
	}
}
