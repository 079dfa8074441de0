package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestConfigCheck_tries_the_templates_of_gateways(t *testing.T) {
	gateways := write(t, "gateways.yaml", `gateways: [{name: ops, url: "http://chat.example.org/geheim", body: '{"text": "{{.Text}}"}'}]`)
	r := capriIn(t, nil, "", "config", "check", "--config", write(t, "c.yaml", "alerting: {gateways_file: "+gateways+"}"))
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.err, "gateways[0].body: want each value in a JSON body to be written by json")
	assert.NotContains(t, r.err, "geheim")
}
