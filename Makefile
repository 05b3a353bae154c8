# Everything runs in .venv, made on first use; pip takes packages from wherever it is configured to.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles what is imported; compiling all of torch takes longer than installing it.
PIP := $(BIN)/python -m pip install --quiet --no-compile
EXAMPLE := fixtures/exposed-copy/bad.json.gz
# More options: PYTEST='-m ""' runs also what is marked `slow`: more programs, processes and jobs of a kind that one test has already,
# large traces, and what takes seconds each: Perfetto's viewer, a cluster, torchrun, a wheel that is installed.
PYTEST ?=

# The tests start the program a hundred times: what it is compiled to is kept, whatever the machine says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests coverage lint types style rule fixtures bench clean

demo: .venv/installed
	$(BIN)/traceanalyzer diagnose $(EXAMPLE)

test: .venv/tested
	$(MAKE) --no-print-directory --jobs=3 tests types style

tests: .venv/tested
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow" $(PYTEST)

# The tests of `make test` must run 94 % of the lines; counting them takes half as long again.
coverage: .venv/tested
	$(MAKE) --no-print-directory tests PYTEST='--cov --cov-report=term'

lint: .venv/dev
	$(MAKE) --no-print-directory --jobs=2 --output-sync types style

types: .venv/dev
	$(BIN)/mypy

style: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python tools/docs.py --check

# All checks of one rule: make rule RULE=my-rule
rule: .venv/tested
	$(BIN)/python tools/new_rule.py --check $(RULE)

# Needs a GPU and torch; writes what fixtures/README.md lists.
fixtures: .venv/tested
	$(BIN)/python -m capture.fixtures

bench: .venv/tested
	$(BIN)/python -m benchmarks

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) 'pip>=25.1' # the first that knows dependency groups
	$(PIP) --editable .
	touch $@

.venv/dev: .venv/installed
	$(PIP) --group dev
	touch $@

.venv/tested: .venv/dev
	$(PIP) --group test
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
