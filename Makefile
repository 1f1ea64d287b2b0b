# One line a target: `make help`. Every target does its own set-up.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
# One process more than there are cores: some tests wait for others, or for a time.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Tests keep bytecode, even where the shell forbids it: else each worker and process compiles all modules and asserts again.
TESTED := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

OLDEST_TESTS := tests/cli tests/data tests/stats tests/store tests/studies tests/tables tests/training

# Folders and files of test-fast, without those that simulate, damage stores or compose configurations.
FAST_TESTS := tests/stats tests/store $(addprefix tests/test_,$(addsuffix .py,allowed costs csv_table geometry identity \
	names progress shapes subset support)) \
	$(foreach name,prediction reliance robustness segments,$(wildcard tests/studies/*/stats/test_$(name).py))
SLOW_OF_STATS := abstention decision intervals predictors probe variance
SLOW_OF_STORE := claims damage index links schemas
NOT_FAST := $(addprefix --ignore=tests/stats/test_,$(addsuffix .py,$(SLOW_OF_STATS))) \
	$(addprefix --ignore=tests/store/test_,$(addsuffix .py,$(SLOW_OF_STORE)))

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test-fast doctests pure-tests test test-wide test-long test-oldest check smoke clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

setup: $(STAMP)  ## a .venv with everything, from pyproject.toml and constraints.txt

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

demo: $(STAMP)  ## the quickstart study on drawn objects, on all cores, and its page
	$(BIN)/fca run -m experiment=quickstart hydra/launcher=joblib
	$(BIN)/fca report report=few_class

docs: $(STAMP)  ## the site, outputs/docs/index.html, which opens as a file
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict -f docs/site/mkdocs.yml
	@echo outputs/docs/index.html

test-fast: $(STAMP)  ## doctests and tests of pure functions and of the store: after each edit
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target doctests pure-tests

# Two processes and no workers, each of which would import all modules and collect all tests.
doctests:
	$(TESTED) -m 'not real and not slow' fca

pure-tests:
	$(TESTED) -m 'not real and not slow' $(FAST_TESTS) $(NOT_FAST)

test: $(STAMP)  ## tests that need no network, no GPU and no other data, in minutes
	$(TESTED) -m 'not real and not slow and not wide' -n $(WORKERS) --dist worksteal --ignore tests/test_conf.py \
		--ignore tests/test_documented_commands.py  # both are of make check

test-wide: $(STAMP)  ## one claim on many inputs, and whole commands and studies: with make test, what CI runs
	$(TESTED) -m 'wide and not real and not slow' -n $(WORKERS) --dist worksteal

test-long: $(STAMP)  ## what takes long: simulations, killed and parallel sweeps, every experiment and preset, speed scripts
	$(TESTED) -m 'slow' -n logical --dist worksteal --durations=20

# The oldest versions that pyproject.toml allows, but for torch's; warnings of old libraries are no errors here, and
# jaxtyping's plugin of that age cannot check shapes beside a conftest.
OLDEST := .venv-oldest/.installed
$(OLDEST): pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e '.[export,launchers]' \
		pytest pytest-xdist hypothesis beartype statsmodels
	touch $@

test-oldest: $(OLDEST)  ## the tests of store, numbers, command line and trainings, with the oldest libraries
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -m 'not real and not slow' -n logical --dist worksteal \
		-p no:jaxtyping -o addopts='--import-mode=importlib --strict-markers -q' -o filterwarnings=default $(OLDEST_TESTS)

check: $(STAMP)  ## style, types, layers, every YAML against its class, every command of the docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(TESTED) -q tests/test_conf.py tests/test_documented_commands.py -n logical -o addopts=--import-mode=importlib  # no shapes to check

smoke: $(STAMP)  ## every experiment, shrunk to seconds
	$(TESTED) -q tests/test_experiments.py

clean:  ## remove what can be made again (never outputs/)
	rm -rf .venv .venv-oldest .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
