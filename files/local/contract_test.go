package local

import (
	"os"
	"testing"

	"capri/files/filestest"
)

func TestContract(t *testing.T) {
	filestest.Run(t, func(t *testing.T) filestest.World {
		dir := t.TempDir()
		return filestest.World{
			Files: New(Options{}), Dir: dir, Foreign: "hdfs://nn/a",
			Write: func(path, text string) {
				// Beside it first: a rewritten file is another one, as on HDFS.
				touch(t, dir+path+".new", text)
				if err := os.Rename(dir+path+".new", dir+path); err != nil {
					t.Fatal(err)
				}
			},
			Mkdir: func(path string) {
				if err := os.MkdirAll(dir+path, 0o755); err != nil {
					t.Fatal(err)
				}
			},
			Remove: func(path string) {
				if err := os.RemoveAll(dir + path); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
