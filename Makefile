# Each target sets up what it needs in .venv; nothing is installed outside of it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test lint bench docs clean

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install --editable '.[cpu]'
	touch $@

# torch is pinned here and only here: this release exists as a CPU build.
$(VENV)/.dev: $(VENV)/.core
	$(PIP) install torch==2.13.0
	$(PIP) install --editable '.[cpu,dev,torch]'
	touch $@

demo: $(VENV)/.core
	$(BIN)/ortisan demo $(ARGS)

# A file's tests stay in one process, which builds what they share once.
test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) install --editable '.[cpu,bench,torch]'
	touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.core
	$(BIN)/python -m ortisan.registry.document docs/ops.md

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
