# make bench   create the environment and run the benchmarks   (make bench ARGS="-k matmul" passes options on)
# make test    create the environment, then lint, type check and tests
# Needs Python 3.10 to 3.13 with venv, make and git. Choose another interpreter with PYTHON=...

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
WHAT := -r requirements.txt -e ".[dev]"
ARGS ?=
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3.10 python3 python; do \
	$$python -c 'import sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' >/dev/null 2>&1 && echo $$python && break; done)

.PHONY: help bench test lint types harness clean

help:
	@sed -n 's/^# \(make.*\)/\1/p' Makefile

bench: $(READY)
	@echo "tfbench: running the benchmarks: pytest --benchmark $(ARGS)"
	@$(BIN)/pytest --benchmark $(ARGS)

test: $(READY) lint types
	@echo "tfbench: running the tests: pytest $(ARGS)"
	@$(BIN)/pytest $(ARGS)

lint: $(READY)
	@echo "tfbench: lint: ruff check"
	@$(BIN)/ruff check --quiet tfbench benchmarks tests conftest.py

types: $(READY)
	@echo "tfbench: types: mypy"
	@$(BIN)/mypy --no-error-summary

harness: $(READY)
	@echo "tfbench: what the harness itself costs: python -m benchmarks.harness"
	@$(BIN)/python -m benchmarks.harness

# The stamp is written last, so that an environment half made is made again.
$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "tfbench: no Python 3.10 to 3.13 with venv was found; name one with PYTHON=..." >&2; exit 1; }
	@echo "tfbench: creating the environment $(VENV) with $(PYTHON): about 2.5 GB, a minute or two"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) "uv>=0.5,<1" && VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --compile-bytecode $(WHAT) || { \
		echo "tfbench: uv did not do it; once more with pip, which is slower"; $(PIP) $(WHAT); }
	@touch $(READY)

clean:
	@echo "tfbench: removing the environment and caches"
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis tfbench.egg-info build
