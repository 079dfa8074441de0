package conf

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecrets_of_examples_and_short_ones_are_refused_without_being_said(t *testing.T) {
	for _, secret := range []string{"changeme", "Change-Me", "CHANGE_ME", "secret", "<your token>", "${TOKEN}", "***", "…", "xxxxxxxxxxxxxxxxxxxx", "default_token", "your-secret", "0000000000000000", "short-one"} {
		assert.NotEmpty(t, weak(secret), secret)
	}
	for _, file := range []string{"geheim-7", "changeme", ""} {
		secret := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(secret, []byte(file+"\n"), 0o600))
		config := filepath.Join(t.TempDir(), "capri.yaml")
		require.NoError(t, os.WriteFile(config, []byte("quality: {url: 'http://q/', token_file: '"+secret+"'}\n"), 0o600))
		_, err := Load(config, true, nil)
		require.ErrorContains(t, err, "quality.token_file", file)
		if file != "" {
			assert.NotContains(t, err.Error(), file)
		}
	}
	for _, secret := range []string{"", "q8Lz-44vXw91-ppRT", "c2V2ZW4gb3N0cmljaGVz"} {
		assert.Empty(t, weak(secret), secret)
	}
}
