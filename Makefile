# `make` prints this list. What a target does is in scripts/, each runnable alone.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO      ?= go
LINT    := $(GO) tool -modfile=tools/go.mod golangci-lint
BENCH   ?=
FUZZ    ?= 10s
MINUTES ?= 2
SEED    ?= 1
DATA    ?= ./capri-data

# Recorded pipelines, where they lie beside the checkout.
CAPRI_WORKLOADS ?= $(wildcard $(abspath ../shared/workloads))
export CAPRI_WORKLOADS VERSION DATA

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

.PHONY: help
help:
	@echo "Capri $(VERSION)"
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

##
.PHONY: run build dev demo
run: build ## build, start it here with sample tasks (Ctrl-C stops)
	@scripts/run

build: ## bin/capri and bin/capri-shim
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/capri ./cmd/capri-shim

dev: build ## a master and two workers on a MariaDB and a Redis of their own
	@scripts/dev

demo: ## replay recorded pipelines of real installations
	@scripts/demo

.PHONY: quick test test-hdfs check bench bench-hdfs fuzz golden soak mutants
quick: ## tests on SQLite alone, cached
	@scripts/test

test: ## all tests, with a real MariaDB and Redis (installed where absent)
	@scripts/test -s

test-hdfs: ## what touches HDFS, against a real name-node that is killed, frozen and slow
	@scripts/install-servers
	@TEST_P=1 scripts/with-servers scripts/with-hdfs sh -c 'scripts/test ./files/... && scripts/test -run HDFS ./test'

check: check-format check-modules ## format, vet, lint, imports, go.mod
	@$(GO) vet ./...
	@$(GO) test ./internal/deps
	@$(LINT) run

bench: build ## measure; BENCH="…" are arguments of cmd/capri-bench
	@$(GO) build -o bin/ ./cmd/capri-bench
	@scripts/install-servers
	@CAPRI_SERVERS_BUFFER_POOL=4G scripts/with-servers bin/capri-bench $(BENCH) # a million definitions and their batches fit into it

bench-hdfs: ## measure looks at 100,000 paths of a real HDFS
	@$(GO) build -o bin/ ./cmd/capri-bench
	@scripts/with-hdfs bin/capri-bench -only hdfs/

fuzz: ## each fuzzer for FUZZ=10s
	@scripts/fuzz $(FUZZ)

golden: ## rewrite the golden files
	@scripts/golden

soak: ## a cluster under faults, then checked; MINUTES=2 SEED=1
	@scripts/install-servers
	@scripts/with-servers $(GO) test -tags failpoint ./internal/failpoint ./services/alert
	@CAPRI_TEST_WHOLE=true $(GO) test -tags failpoint ./services/campaign -run 'TestA_crash_between_any_two/sqlite'
	@MINUTES=$(MINUTES) SEED=$(SEED) scripts/soak

mutants: ## take one rule away at a time; a named test must notice
	@scripts/mutants

.PHONY: dist clean check-format check-modules
dist: ## archives for linux amd64, arm64, armv7 in dist/
	@scripts/dist

clean: ## remove bin/ and dist/ (capri-data stays)
	@rm -rf bin dist

check-format:
	@bad=$$(gofmt -l .); \
	if [ -n "$$bad" ]; then echo "not formatted (gofmt -w):"; echo "$$bad"; exit 1; fi

check-modules:
	@$(GO) mod tidy -diff
	@$(GO) build -mod=readonly ./...
