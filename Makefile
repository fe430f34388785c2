# `make help` lists the targets.
PYTHON ?= python3
PIP_FLAGS ?=
VENV := .venv
BIN := $(VENV)/bin
PROTO := proto/gpuagent_proto/v1
SHELL := /bin/bash
# Tests start hundreds of Pythons: each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# Each process of tests trains and starts servers of its own, and waits for them a third of its time: three keep two
# cores busy, and need 4 GB. Modules stay whole, and begin in the order of tests/conftest.py, the longest first.
JOBS ?= 3
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder $(ARGS)

.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | column -ts $$'\t'

# What is installed depends on these files alone; a stamp saves the next call the work.
# pip's settings on make's command line are for the images: without an index, nothing could be installed here.
$(foreach name,PIP_NO_INDEX PIP_EXTRA_INDEX_URL,$(if $(filter command,$(origin $(name))),$(eval unexport $(name))))

# The index has builds of all dependencies for these processors alone.
check_machine = @case "$$(uname -m)" in x86_64|aarch64|arm64) ;; *) way="with conda or in a container"; \
  ! command -v apt-get >/dev/null || way="with packages of apt-get"; \
  echo "gpuagent: the package index has no builds for $$(uname -m); install the agent $$way: docs/deploy/power.md" >&2; exit 1 ;; esac

$(VENV)/.made:
	$(check_machine)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "gpuagent needs Python 3.10 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@touch $@

# Of what pip prints, a line for each package that it fetches.
$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing gpuagent, its collector and the workloads with torch into $(VENV); this takes a minute or more"
	@set -o pipefail; $(BIN)/python -m pip install --progress-bar off --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[collector,lake,plot,workloads]' \
		| awk '/^ *(Downloading|Using cached) [^ ]*[.](whl|gz) / { print "  " $$(NF-2), $$(NF-1), $$NF } /^Installing/ { print "  unpacking " NF - 3 " packages" } { fflush() }'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[collector,lake,workloads,dev]'
	@touch $@

install: $(VENV)/.installed ## Install everything a user needs into .venv
	@echo "installed: $(BIN)/gpuagent and $(BIN)/collector"

demo: $(VENV)/.installed ## Run MNIST quiet and beside a CPU load, and compare (under 3 minutes on 2 quiet cores)
	@mkdir -p demo-data && cd demo-data && PATH="$(abspath $(BIN)):$$PATH" gpuagent bench mnist --with none --with cpu-burn --rounds 4 --warm-up 0 --anew

test: $(VENV)/.installed-dev ## Run the quick tests, of every feature's main path, JOBS=3 at a time (5 minutes on 2 quiet cores; ARGS='-k spool' narrows them)
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/.installed-dev ## Run all tests, the slow ones as well
	$(PYTEST)

test-changed: $(VENV)/.installed-dev ## Run the tests that a change touches (BASE=REVISION; default main, or HEAD on main)
	@tests=$$($(BIN)/python scripts/changed_tests.py $(BASE)) && \
	  if [ -n "$$tests" ]; then $(PYTEST) $$tests; else echo "no test touches the change"; fi

lint: $(VENV)/.installed-dev ## Check style, types and the layers between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck --external-sources --source-path=SCRIPTDIR $$(grep -rlE '^(#!.*sh|# shellcheck shell=sh)$$' deploy)

audit: $(VENV)/.installed-dev ## Look up the pinned versions among the known weaknesses; needs the network, and says when that has no answer
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[audit]'
	@$(BIN)/python scripts/audit.py

format: $(VENV)/.installed-dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --quiet .

proto: $(VENV)/.installed-dev ## Generate the wire format's code from the .proto files
	$(BIN)/python scripts/generate_proto.py

docs: $(VENV)/.installed-dev ## Generate docs/commands.md, and the answers of experiment files, from the commands
	$(BIN)/python scripts/generate_commands.py

site: $(VENV)/.installed-dev ## Build the documentation as a site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

goldens: $(VENV)/.installed-dev ## Write anew what answers print and what is read from files of others; review the diff
	GOLDENS=write $(BIN)/python -m pytest -q tests/integration/compare/test_goldens.py tests/unit/exchange/test_foreign.py

figures: ## Print the size of the code and its figures (TREES='. ../other' compares checkouts)
	@$(firstword $(wildcard $(BIN)/python) $(PYTHON)) scripts/code_figures.py $(TREES)

fuzz: $(VENV)/.installed-dev ## Fuzz everything that reads what others wrote: a million inputs, or six minutes, each (ARGS='sql --seconds 60')
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz $(ARGS)

bench: $(VENV)/.installed-dev ## Measure latency, start-up and comparing (about 4 minutes)
	$(BIN)/python -m benchmarks $(ARGS)

bench-ingest: $(VENV)/.installed-dev ## Values a second and bytes on disk, beside DuckDB alone, VictoriaMetrics and Prometheus where installed (about 5 minutes)
	$(BIN)/python -m benchmarks.ingest $(ARGS)

bench-lake: $(VENV)/.installed-dev ## One to three collectors on a lake, with Debian's PostgreSQL, and asking it beside a file (about 4 minutes)
	$(BIN)/python -m benchmarks.lake $(ARGS)

bench-statistics: $(VENV)/.installed-dev ## Simulate every statistical method, and write the tables of docs/statistics.md (a minute of CPU time)
	$(BIN)/python -m benchmarks.statistics $(ARGS)

bench-fleet: $(VENV)/.installed-dev ## What fleets of 10 to 100,000 nodes take (ARGS=--check measures anew and simulates nodes, about 5 minutes)
	$(BIN)/python -m benchmarks.fleet $(ARGS)

bench-load: $(VENV)/.installed-dev ## Load one collector with 1,000 simulated agents over TLS, some slow, some stalled (30 minutes; ARGS='--agents 100 --minutes 2')
	$(BIN)/python -m benchmarks load $(ARGS)

bench-agent: $(VENV)/.installed-dev ## Measure what the agent costs beside its peers, and what it slows down; 30 minutes of soak
	$(BIN)/python -m benchmarks agent states slowdown soak

bench-faults: $(VENV)/.installed-dev ## Kill, cut, fill and damage real processes by seed, count what is lost or stored twice (about 15 minutes, as root)
	$(BIN)/python -m tests.fault.trials $(ARGS)

bench-space: $(VENV)/.installed-dev ## Fill disks under backup, export, import, compaction, deletion and migration, and count losses (as root)
	$(BIN)/python -m benchmarks.space_trials $(ARGS)

verify-gpu: $(VENV)/.installed-dev ## On a machine with an NVIDIA GPU: the agent's figures beside nvidia-smi's
	$(BIN)/python -m benchmarks.verify_gpu
	$(BIN)/python -m benchmarks.verify_gpm

bench-gpu: $(VENV)/.installed-dev ## On a machine with NVIDIA GPUs: every workload, plain loops, counters, ranks (ARGS chooses)
	$(BIN)/python -m benchmarks.gpu $(ARGS)

bench-gke: $(VENV)/.installed ## Measure accelerators on GKE and compare them (ACCELERATORS=nvidia-l4,… REGISTRY=…; DRY_RUN=1)
	@$(BIN)/python deploy/gke/bench_gke.py --accelerators='$(ACCELERATORS)' --registry='$(REGISTRY)' $(if $(DRY_RUN),--dry-run) $(ARGS)

wheel: $(VENV)/.installed-dev ## Build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

# With the package index: it fetches what uvx installs beside the wheel.
release-check: $(VENV)/.installed-dev ## Build wheel and source distribution from the last commit, and try them as users get them (2 minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[release]'
	$(BIN)/python -m pytest -p no:randomly tests/integration/test_wheel.py tests/integration/test_release.py $(ARGS)

# Neither fits beside what the other tests need.
build/trackers/bin/mlflow:
	$(PYTHON) -m venv build/trackers
	build/trackers/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) mlflow==3.17.2 trackio==0.43.0

trackers-check: $(VENV)/.installed-dev build/trackers/bin/mlflow ## Publish runs to a real MLflow and Trackio, fetched into build/trackers (5 minutes)
	$(BIN)/python -m pytest tests/integration/exchange/test_publish.py $(ARGS)

# REGISTRY=registry.example/me is put before the names; BASE, TORCH, PIP_EXTRA_INDEX_URL and PIP_NO_INDEX are the recipes' arguments.
# WHEELS is a folder of wheels that pip shall not fetch. ENGINE=podman builds as well. MACHINE=arm64 builds for that processor, by
# emulation on another; MACHINE=ppc64le needs a BASE with the packages that docs/deploy/power.md names.
ENGINE ?= docker
IMAGES ?= agent collector workloads
TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE_ARGUMENTS := BASE TORCH PIP_EXTRA_INDEX_URL PIP_NO_INDEX
image_arguments = --build-arg VERSION=$(TAG) $(foreach name,$(IMAGE_ARGUMENTS),$(if $(filter command,$(origin $(name))),--build-arg $(name)='$($(name))'))

images: wheel ## Build the images agent, collector and workloads (IMAGES=agent ENGINE=podman MACHINE=arm64 REGISTRY=… TAG=… TORCH=… KUBECTL=…)
	rm -rf build/images && mkdir -p build/images/wheels
	cp $$(ls -t dist/gpuagent-*.whl | head -1) $(if $(WHEELS),$(WHEELS)/*.whl) build/images/wheels
	$(if $(KUBECTL),cp $(KUBECTL) build/images/wheels/kubectl)
	grep -vE '^($(if $(TORCH),torch)$(if $(filter ppc64le,$(MACHINE)),|grpcio|protobuf|psutil|PyYAML))==' constraints.txt \
	  >build/images/wheels/constraints.txt
	for image in $(IMAGES); do \
	  $(ENGINE) build $(if $(MACHINE),--platform linux/$(MACHINE)) $(image_arguments) --file deploy/docker/$$image.Dockerfile --tag $(if $(REGISTRY),$(REGISTRY)/)gpuagent-$$image:$(TAG) build/images || exit 1; \
	done

images-check: $(VENV)/.installed-dev ## Build every image for real, without a network, on this machine's Python, and run it (some minutes)
	IMAGES_CHECK=all $(BIN)/python -m pytest tests/integration/containers/test_image_recipes.py tests/unit/deploy/test_dockerfiles.py $(ARGS)

# Options of deploy.kubernetes, of variables on make's own command line: OVERLAY=gke is --overlay='gke'. What happens to be in the
# environment decides nothing about a cluster.
DEPLOY_VARIABLES := OVERLAY CONTEXT REGISTRY TAG PLATFORM COLLECTOR TOKEN_FILE CA_FILE CERTIFICATES HOST MUTUAL_TLS LAUNCH PODS STORE DATA LAKE_FILE REPLICAS KEEP KEEP_RAW KEEP_SECONDS
deploy_option = $(if $(filter command,$(origin $(1))),--$(shell echo $(1) | tr A-Z_ a-z-)='$($(1))')
DEPLOY_OPTIONS = $(foreach name,$(DEPLOY_VARIABLES),$(call deploy_option,$(name)))
deploy_kubernetes = @$(firstword $(wildcard $(BIN)/python) $(PYTHON)) -m deploy.kubernetes

deploy-daemonset: ## Deploy agents and a collector to Kubernetes (OVERLAY=gke CONTEXT=… REGISTRY=… PLATFORM=…)
	$(deploy_kubernetes) deploy $(DEPLOY_OPTIONS)

undeploy: ## Take them away again; keeps the store's volume (OVERLAY=… CONTEXT=…)
	$(deploy_kubernetes) undeploy $(DEPLOY_OPTIONS)

diff: ## Show what deploy-daemonset would change (the same variables)
	$(deploy_kubernetes) diff $(DEPLOY_OPTIONS)

render: ## Print the manifests that deploy-daemonset applies (the same variables)
	$(deploy_kubernetes) render $(DEPLOY_OPTIONS)

PREFIX ?= /opt/gpuagent

install-agent: ## As root: install the agent into /opt/gpuagent (PREFIX) as a systemd service
	$(check_machine)
	@deploy/systemd/services.sh check agent $(PREFIX)
	@$(PYTHON) -m venv $(PREFIX)
	$(PREFIX)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --upgrade -c constraints.txt .
	@cp -r deploy/slurm deploy/systemd $(PREFIX)/
	@deploy/systemd/services.sh install agent $(PREFIX)

uninstall-agent: ## As root: take the agent's service away again, and PREFIX unless the collector runs from it; keeps the spool
	@deploy/systemd/services.sh check agent $(PREFIX)
	@deploy/systemd/services.sh uninstall agent $(PREFIX)
	@test ! -e $(PREFIX)/systemd/gpuagent.service || grep -qsF '=$(PREFIX)/bin/collector' /etc/systemd/system/gpuagent-collector.service || rm -rf $(PREFIX)

installer: $(VENV)/.installed-dev ## Make dist/gpuagent-….run, which installs without a network (ARGS='--python 3.10 3.12 --machine aarch64')
	@$(BIN)/python scripts/make_installer.py $(ARGS)

clean: ## Remove .venv and what tools left
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: help install demo test test-changed docs goldens figures lint audit format proto bench bench-ingest bench-lake bench-fleet bench-load bench-agent bench-faults bench-space verify-gpu bench-gpu bench-gke wheel clean deploy-daemonset undeploy diff render images images-check install-agent uninstall-agent installer
