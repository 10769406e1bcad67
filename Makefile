# Two commands matter: `make demo` and `make test`. Each sets everything up by itself the first time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch exactly: on machines with a CPU build of this version, that build is taken and no CUDA packages come in.
TORCH := torch==2.13.0

.PHONY: demo test test-all test-system check setup bench bench-peers chaos clean

demo: setup
	$(BIN)/acclimate run quickstart

test: setup check
	$(BIN)/python -m pytest -m "not slow and not system" --numprocesses auto --dist worksteal

test-all: setup check
	$(BIN)/python -m pytest -m "not system" --numprocesses auto --dist worksteal

# The report in a real browser, the wheel in an empty environment, and clients on Flower.
test-system: setup $(VENV)/.flower
	$(BIN)/python -m pytest -m system tests/system

check: setup
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m benchmarks

# pfl and Flower in an environment of their own; then everything is measured, beside them too, into docs/speed.md.
bench-peers: setup .venv-peers/.ready
	$(BIN)/python -m benchmarks

.venv-peers/.ready:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet $(TORCH)
	.venv-peers/bin/pip install --quiet 'pfl[pytorch]==0.6.0' 'flwr[simulation]==1.41.0' annotated-types safetensors
	touch $@

chaos: setup
	$(BIN)/python tests/chaos/suite.py

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "acclimate needs Python 3.11 or newer; found: $$($(PYTHON) --version). Try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet $(TORCH)
	PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

# Flower is large, and only those who use it need it.
$(VENV)/.flower: $(VENV)/.ready
	PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet --editable '.[dev,flower]'
	touch $@

clean:
	rm -rf $(VENV) .venv-peers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
