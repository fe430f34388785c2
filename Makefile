# `make help` lists the targets.
PYTHON ?= python3
PIP_FLAGS ?=
VENV := .venv
BIN := $(VENV)/bin
PROTO := proto/gpuagent_proto/v1
SHELL := /bin/bash
# Each process of tests trains and starts servers of its own: two cores and 4 GB are enough for two.
JOBS ?= 2

.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | column -ts $$'\t'

# What is installed depends on these files alone; a stamp saves the next call the work.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "gpuagent needs Python 3.10 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[collector,lake,workloads]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[collector,lake,workloads,dev]'
	@touch $@

install: $(VENV)/.installed ## Install everything a user needs into .venv

demo: $(VENV)/.installed ## Run MNIST quiet and beside a CPU load, and compare (about 3 minutes)
	@$(BIN)/python scripts/demo.py

test: $(VENV)/.installed-dev ## Run all tests, JOBS=2 at a time (ARGS='-k spool' narrows them)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope $(ARGS)

lint: $(VENV)/.installed-dev ## Check style, types and the layers between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --quiet .

proto: $(VENV)/.installed-dev ## Generate the wire format's code from the .proto files
	$(BIN)/python scripts/generate_proto.py

bench: $(VENV)/.installed-dev ## Measure ingest, latency, start-up and comparing (about 5 minutes)
	$(BIN)/python -m tests.bench $(ARGS)

bench-agent: $(VENV)/.installed-dev ## Measure what the agent costs beside its peers, and what it slows down; 30 minutes of soak
	$(BIN)/python -m tests.bench agent slowdown soak

verify-gpu: $(VENV)/.installed-dev ## On a machine with an NVIDIA GPU: the agent's figures beside nvidia-smi's
	$(BIN)/python -m tests.bench.verify_gpu
	$(BIN)/python -m tests.bench.verify_gpm

bench-gpu: $(VENV)/.installed-dev ## On a machine with NVIDIA GPUs: every workload, plain loops, counters, ranks (ARGS chooses)
	$(BIN)/python -m tests.bench.gpu $(ARGS)

wheel: $(VENV)/.installed-dev ## Build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

clean: ## Remove .venv and what tools left
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: help install demo test lint format proto bench bench-agent verify-gpu bench-gpu wheel clean
