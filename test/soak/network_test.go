package main

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers what it is told.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

// answers says whether a byte comes back through a new connection.
func answers(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err = c.Read(make([]byte, 1))
	return err == nil
}

func TestALink_is_cut_silenced_and_reset_and_heals_at_the_same_address(t *testing.T) {
	l, err := newLink("test", "127.0.0.1", echo(t))
	require.NoError(t, err)
	defer l.cut()
	address := l.address
	for name, hurt := range map[string]func() error{"cut": l.cut, "silence": l.silence, "reset": l.reset} {
		require.True(t, answers(address), name)
		require.NoError(t, hurt(), name)
		require.False(t, answers(address), name)
		require.NoError(t, l.heal(), name)
		require.True(t, answers(address), name)
	}
}

func TestASilentLink_is_gone_for_connections_that_were_open_too(t *testing.T) {
	l, err := newLink("test", "127.0.0.1", echo(t))
	require.NoError(t, err)
	defer l.cut()
	c, err := net.Dial("tcp", l.address)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, l.silence())
	_, err = c.Write([]byte("x"))
	require.NoError(t, err, "nobody tells the sender")
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, l.heal())
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "a connection with a hole in it is not continued")
}
