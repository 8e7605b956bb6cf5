# Every target does all of its own set-up: only Python >= 3.11 and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
CODE := src tests benchmarks
ONLY ?=
ARGS ?=
# Each process of the tests has an embedded server of its own; one more than there are cores, as much of it is waiting.
SIDE_BY_SIDE := -n $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 1) + 1, 4))')

.DEFAULT_GOAL := help
.PHONY: help setup check format test test-slow test-browser demo bench notebook build clean

help:
	@echo "make demo       a backfill of two million rows that is killed and resumes"
	@echo "make test       the tests (without the slow ones)"
	@echo "make test-slow  the tests that start, kill and install real processes"
	@echo "make test-browser  the tests that drive JupyterLab with Chromium (Debian: apt-get install chromium)"
	@echo "make check      format, lint, types and import rules"
	@echo "make bench      the benchmarks; ONLY=sweep for some of them"
	@echo "make notebook   JupyterLab on the notebooks, with everything installed"
	@echo "make build      the wheel and the source archive, in dist/"
	@echo "make format     format the code and apply the safe fixes"
	@echo "make clean      remove what these targets made (.rowsweep/ keeps its data)"

setup: $(STAMP)

# Some systems ship Python without ensurepip; their own pip then installs pip into the environment.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "rowsweep needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV); \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	$(BIN)/python -m pip install --quiet -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

check: $(STAMP)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-cache

format: $(STAMP)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

test: $(STAMP)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" $(ARGS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "slow and not browser" $(ARGS)

test-browser: $(STAMP)
	$(BIN)/python -m pytest -m browser $(ARGS)

demo: $(STAMP)
	$(BIN)/rowsweep demo $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ONLY)

notebook: $(STAMP)
	$(BIN)/jupyter lab notebooks $(ARGS)

build: $(STAMP)
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
