# make bench   create the environment and run a selection of the benchmarks, minutes   (ARGS="-k matmul" selects others)
# make suite   create the environment and run all benchmarks under the policy quick, 22 to 45 minutes
# make test    create the environment, then lint, types, the tests without TensorFlow and the main jobs with it
# make test-all  the same and all other tests, with TensorFlow and with faults
# make test-rest  what test-all has beyond test
# make chaos   create the environment, inject faults into real processes, load, kill and fuzz; at most 15 minutes
# make coverage  run the tests that measure no time, and measure branch coverage, child processes included
# make lint    create the environment and run ruff
# make types   create the environment and run mypy
# make docs    create the environment and build the documentation into build/site; fails on a broken link
# make schemas write tfbench/schemas from the classes of the file formats
# make fuzz    create the environment and give all readers of files 100,000 mutated files, five minutes
# make mutants  change the deciding and storing code in 10,400 ways, and list the changes that no test notices; hours
# make harness create the environment and measure the overhead of the harness
# make gate-demo create the environment and run the gate's steps on a scratch repository with six pull requests
# make gpu-check create the environment and check that tfbench works on the GPU of this machine
# make release-check  build the distribution, check it, and use it in an empty environment; a minute
# make clean   remove the environment and the caches
# make help    print these lines
# Needs Python 3.10 to 3.13 with venv, make and git. PYTHON=... selects another interpreter.

SHELL := /bin/sh
# Without bytecode every process of the tests would compile tfbench again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
WHAT := -r requirements.txt -e ".[dev]"
ARGS ?=
PYTEST = $(BIN)/python -m pytest
# Tests that measure no time run on every processor. A module stays in one process, because its tests share runs.
PARALLEL := -n $(or $(JOBS),auto) --dist loadscope --no-loadscope-reorder
FIRST := not (tensorflow or chaos or slow) or smoke
SECOND := (tensorflow or chaos or slow) and not smoke
# One or two benchmarks of each family. ARGS replaces this selection.
TOUR = -k "test_matmul or test_conv2d_bias_relu or test_dense_bias_relu or test_softmax or test_convolution_block or \
	test_training_step or test_epoch or test_function_call or test_keras_invocation or test_eager_add or \
	test_pipeline_waiting or test_pipeline_small_records or test_fed_training or test_saved_model or test_ceilings"
# The interpreter must run: pyenv puts names on the path that start none, and Debian has a venv without ensurepip.
SUITABLE := import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3.10 python3 python; do \
	$$python -c '$(SUITABLE)' >/dev/null 2>&1 && echo $$python && break; done)

.PHONY: help bench suite test test-all test-rest chaos fuzz mutants coverage docs lint types schemas harness gate-demo gpu-check release-check clean

help:
	@sed -n 's/^# \(make.*\)/\1/p' Makefile

# Messages use $(info): in a shell's echo, parentheses in ARGS would be syntax.
bench: $(READY)
	$(info tfbench: running the benchmarks: pytest --benchmark $(or $(ARGS),$(TOUR)))
	@$(BIN)/pytest --benchmark $(or $(ARGS),$(TOUR))

suite: $(READY)
	$(info tfbench: running all benchmarks: pytest --benchmark --policy quick $(ARGS))
	@$(BIN)/pytest --benchmark --policy quick $(ARGS)

# pytest exits with 5 if ARGS, such as "-k name", select no test.
some = $(1) || test $$? -eq 5

test: $(READY) lint types
	$(info tfbench: running the tests without TensorFlow and the main jobs: pytest -m "$(FIRST)" $(ARGS))
	@$(call some,$(PYTEST) $(PARALLEL) -m "($(FIRST)) and not alone" $(ARGS))
	@$(call some,$(PYTEST) -m "($(FIRST)) and alone" $(ARGS))

test-rest: $(READY)
	$(info tfbench: running the tests with TensorFlow, beside other plugins and with faults: pytest -m "$(SECOND)" $(ARGS))
	@$(call some,$(PYTEST) $(PARALLEL) -m "($(SECOND)) and not alone" $(ARGS))
	@$(call some,$(PYTEST) -m "($(SECOND)) and alone" $(ARGS))

# Both rings at once: tests are collected only once, and no processor waits for the end of the first ring.
test-all: $(READY) lint types
	$(info tfbench: running all tests: pytest -m "not alone", then pytest -m alone $(ARGS))
	@$(call some,$(PYTEST) $(PARALLEL) -m "not alone" $(ARGS))
	@$(call some,$(PYTEST) -m "alone" $(ARGS))

# `make chaos` calls this as well.
fuzz: $(READY)
	$(info tfbench: giving all readers of files mutated files: pytest tests/fuzz)
	@TFBENCH_FUZZ=$(or $(INPUTS),100000) $(PYTEST) -n $(or $(JOBS),auto) tests/fuzz $(ARGS)

# Results stay in mutants/, and a second call goes on from them. ARGS="--sample 100" runs 100 mutants.
mutants: $(VENV)/.mutants
	$(info tfbench: running mutants of the code that decides and stores: python -m tests.mutants $(ARGS))
	@$(BIN)/python -m tests.mutants $(if $(JOBS),--jobs $(JOBS)) $(ARGS)

$(VENV)/.mutants: $(READY)
	@$(BIN)/uv pip install --python $(BIN)/python --quiet -e ".[mutants]" || $(PIP) -e ".[mutants]"
	@touch $@

chaos: $(READY)
	$(info tfbench: injecting faults into real processes: pytest -m chaos $(ARGS))
	@TFBENCH_CHAOS=whole $(PYTEST) $(PARALLEL) -m chaos $(ARGS)
	@$(MAKE) --no-print-directory fuzz

# TFBENCH_TRACED_WORKERS: otherwise a run takes coverage away from its workers, since traced code cannot be timed.
coverage: $(READY)
	$(info tfbench: running all tests under coverage)
	@rm -rf .coverage.d && mkdir .coverage.d
	@TFBENCH_TRACED_WORKERS=1 COVERAGE_FILE=$(CURDIR)/.coverage.d/data $(BIN)/python -m coverage run \
		--source=$(CURDIR)/tfbench -m pytest $(PARALLEL) -m "not chaos and not alone" $(ARGS)
	@COVERAGE_FILE=$(CURDIR)/.coverage.d/data $(BIN)/python -W ignore -m coverage combine --quiet 2> /dev/null
	@COVERAGE_FILE=$(CURDIR)/.coverage.d/data $(BIN)/python -m coverage report

# Never with mkdocs' -q: it hides warnings from --strict, and a broken link then passes.
docs: $(VENV)/.docs
	$(info tfbench: building the documentation: mkdocs build --strict)
	@$(BIN)/python docs/site/check_reference.py
	@$(BIN)/python docs/figures/architecture.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml

$(VENV)/.docs: $(READY)
	@$(BIN)/uv pip install --python $(BIN)/python --quiet -e ".[docs]" || $(PIP) -e ".[docs]"
	@touch $@

schemas: $(READY)
	@$(BIN)/python docs/schemas.py

lint: $(READY)
	$(info tfbench: lint: ruff check, ruff format --check)
	@$(BIN)/ruff check --quiet tfbench benchmarks tests conftest.py
	@$(BIN)/ruff format --check --quiet tfbench benchmarks tests conftest.py

types: $(READY)
	$(info tfbench: types: mypy)
	@$(BIN)/mypy --no-error-summary

harness: $(READY)
	$(info tfbench: measuring the overhead of the harness: python -m benchmarks.harness)
	@$(BIN)/python -m benchmarks.harness

# The stamp is written last, so that an incomplete environment is completed: from scratch if its interpreter is gone,
# and otherwise from the first missing step on.
$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" && "$(PYTHON)" -c '$(SUITABLE)' 2>/dev/null || { \
		echo "tfbench: $(or $(PYTHON),nothing found here) is no Python 3.10 to 3.13 with venv; set PYTHON=..." >&2; exit 1; }
	@echo "tfbench: creating the environment $(VENV) with $(PYTHON): about 2.5 GB, a minute or two"
	@$(BIN)/python -c '$(SUITABLE)' >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade --default-pip >/dev/null
	@uv() { $(BIN)/uv pip install --python $(BIN)/python --quiet --compile-bytecode $(WHAT); }; \
	{ $(PIP) "uv>=0.5,<1" && { uv || { export UV_SYSTEM_CERTS=true; \
		echo "tfbench: uv failed; trying again with the certificates of the system"; uv; }; }; } || { \
		echo "tfbench: uv failed; trying again with pip, which is slower"; $(PIP) $(WHAT); }
	@touch $(READY)

gate-demo: $(READY)
	$(info tfbench: running the gate's steps on six pull requests: python -m tests.e2e.gate_demo)
	@$(BIN)/python -m tests.e2e.gate_demo

# tfbench doctor --gpu exits with 0 on success, 1 on failure and 3 without a GPU. make prints that number and exits with 2.
gpu-check: $(READY)
	$(info tfbench: checking the GPU of this machine: tfbench doctor --gpu)
	@$(BIN)/tfbench doctor --gpu $(ARGS)

release-check: $(READY)
	$(info tfbench: building the distribution, and using it in an empty environment)
	@$(BIN)/python tests/release.py

clean:
	$(info tfbench: removing the environment and caches)
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage.d mutants *.egg-info build
