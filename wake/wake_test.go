package wake

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func pending(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestLocal_wakes_who_listens_once_however_often_it_is_told(t *testing.T) {
	l := NewLocal()
	both, stopBoth := l.Listen(Dispatch, Node("n1"))
	other, stopOther := l.Listen(Dependency)
	defer stopOther()
	l.Wake(Dispatch, Node("n1"), Dispatch)
	l.Wake(Node("n1"))
	require.True(t, pending(both))
	require.False(t, pending(both), "one pending wake-up is enough")
	require.False(t, pending(other))
	l.Wake("nobody listens to this")
	stopBoth()
	l.Wake(Dispatch)
	require.False(t, pending(both), "it has stopped listening")
	l.Wake()
}

func TestLocal_wakes_everybody(t *testing.T) {
	l := NewLocal()
	a, stopA := l.Listen(Dispatch)
	b, stopB := l.Listen(Dependency, Generate)
	defer stopB()
	defer stopA()
	l.wakeAll()
	require.True(t, pending(a))
	require.True(t, pending(b))
	require.False(t, pending(b))
}
