# From a fresh clone: `make demo`, `make demo-graphs`, `make quick`, `make test`. All install first; the second time that is skipped.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALLED := .venv/.installed

.PHONY: setup demo demo-graphs lint quick test fuzz format clean

setup: $(INSTALLED)

# The build backend is pinned too, so it is installed first and the build is not isolated from it.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) hatchling editables
	$(INSTALL) --no-build-isolation --editable '.[dev]'
	touch $@

# Threads that sleep while they wait leave the machine to others, who would otherwise slow the training down a lot.
demo: setup
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python examples/demo.py

demo-graphs: setup
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python examples/derivative.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Within a minute on two cores: all but what tests/conftest.py calls slow, such as trainings.
quick: lint
	$(BIN)/pytest -m 'not slow'

test: lint
	$(BIN)/pytest

# The property tests alone, with examples that no run has tried; what fails is printed with the line that repeats it.
fuzz: setup
	$(BIN)/pytest -m hypothesis --hypothesis-profile=fuzz

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
