# Pointsman. `make help` lists what there is; `make run` and `make test` are the whole set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: help install install-dev run agents serve bootstrap lm fmt lint types arch test pytest bench-intents bench-peers bench-dispatch bench-load fuzz chaos \
	soak dashboard k8s-rules checkov lock clean

help: ## Show this list
	@[ -t 1 ] && bold=$$'\033[1m' plain=$$'\033[0m'; awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" \
		'/^[a-z-]+:.*## / {printf "  %s%-14s%s %s\n", bold, $$1, plain, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Make .venv with everything needed to run (hash-checked)

install-dev: $(VENV)/.installed-dev ## Make .venv with everything needed to test

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Pointsman needs Python 3.11 or newer; set PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing the installer" && $(BIN)/python -m pip install -q --require-hashes --no-deps -r requirements-installer.lock

OR_PIP = { echo "uv could not; pip installs the same, which takes minutes"; false; } || $(BIN)/python -m pip install -q --require-hashes --no-deps

# uv installs in a tenth of pip's time; where it cannot (a registry that only pip is set up for), pip does the same from the same hashes.
$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing from requirements.lock"
	@$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes --no-deps --compile-bytecode -r requirements.lock \
		|| $(OR_PIP) -r requirements.lock
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@echo "installing from requirements-dev.lock"
	@$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes --no-deps --compile-bytecode -r requirements-dev.lock \
		|| $(OR_PIP) -r requirements-dev.lock
	@touch $@

bootstrap: install ## Fit the first router version, where there is none
	@$(BIN)/optimize --bootstrap --if-missing

run: bootstrap ## Start service and agents, ask one real question, serve until Ctrl-C
	@$(BIN)/pointsman run

serve: bootstrap ## Start the service only
	@$(BIN)/pointsman serve

agents: install ## Start the built-in agents only
	@$(BIN)/pointsman agents

lm: install ## Fetch the small local LM for POINTSMAN_LM=local
	@$(BIN)/python scripts/fetch_lm.py

fmt: install-dev ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix -q .

lint: install-dev ## Check format and lint rules
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: install-dev ## Check types
	@$(BIN)/mypy

arch: install-dev ## Check the direction of imports
	@$(BIN)/lint-imports

test: install-dev ## Run every check and test that needs no program besides Python
	@$(MAKE) --no-print-directory -j3 lint types pytest

# Many processes import the same files: an environment that forbids bytecode would have each of them compile them
pytest: install-dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $$(( $$(nproc) + 1 )) --dist loadfile --no-loadscope-reorder --durations=40

bench-intents: install-dev ## Measure the student on public data: make bench-intents DATA=FOLDER
	@$(BIN)/python -m tests.bench.intents --data $(DATA)

# The peers pull in PyTorch (6 GB), so they have an environment of their own
bench-peers: install-dev ## Compare the student with other routers: make bench-peers DATA=FOLDER
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install -q --no-deps -r requirements.lock
	@.venv-peers/bin/python -m pip install -q -r tests/bench/peers.txt
	@.venv-peers/bin/python -m tests.bench.peers --data $(DATA)

bench-dispatch: install-dev bootstrap ## Measure the service's overhead beside two other orchestrators, and what a hanging agent costs
	@test -x .venv-orchestrators/bin/python || $(PYTHON) -m venv .venv-orchestrators
	@.venv-orchestrators/bin/python -m pip install -q -r tests/bench/orchestrators.txt
	@$(BIN)/python -m tests.bench.overhead --peers .venv-orchestrators/bin/python
	@$(BIN)/python -m tests.bench.hanging

k8s-rules: ## Write the alerting rules as the Prometheus operator takes them
	@$(PYTHON) scripts/wrap_rules.py

checkov: .venv-checkov/.installed ## Make .venv-checkov, where checkov is, for the tests of k8s/

# checkov wants old versions of libraries, so it has an environment of its own
.venv-checkov/.installed: tests/ops/checkov.txt
	$(PYTHON) -m venv .venv-checkov
	@.venv-checkov/bin/python -m pip install -q -r tests/ops/checkov.txt
	@touch $@

dashboard: install-dev ## Write k8s/monitoring/dashboard.json anew
	@$(BIN)/python scripts/make_dashboard.py

# LiteLLM's proxy asks for versions of its own
bench-load: install-dev bootstrap ## Measure throughput and latency under load beside LiteLLM's proxy; needs PostgreSQL
	@test -x .venv-litellm/bin/python || $(PYTHON) -m venv .venv-litellm
	@.venv-litellm/bin/python -m pip install -q -r tests/bench/litellm.txt
	@$(BIN)/python -m tests.bench.load_grid --litellm .venv-litellm/bin/python

fuzz: install-dev bootstrap ## Send 50,000 hostile requests, and 2,000 along the document's links
	@$(BIN)/python -m tests.bench.fuzz
	@FUZZ_CASES=2000 $(BIN)/python -m pytest -q --timeout 900 tests/contract/test_schema_fuzz.py

chaos: install-dev bootstrap ## Kill a worker, PostgreSQL, the agents and the LM in turns under load, for ten minutes; needs PostgreSQL
	@$(BIN)/python -m tests.bench.chaos

soak: install-dev bootstrap ## Half of saturation for half an hour: memory, descriptors, rows; needs PostgreSQL
	@$(BIN)/python -m tests.bench.soak

lock: ## Resolve the dependencies anew
	echo uv | $(BIN)/uv pip compile -q --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header - -o requirements-installer.lock
	$(BIN)/uv pip compile -q --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock

clean: ## Remove environment and state (.venv, var, the local MLflow store)
	rm -rf $(VENV) var mlruns/mlflow.db* mlruns/artifacts
