# Two commands do everything on a fresh machine: `make test` and `make fuzz`. Both make their own virtual environment.
PYTHON ?= python3
VENV ?= .venv
MINUTES ?= 1

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: test test-all fuzz lint wheel clean

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

test-all: $(STAMP)
	$(BIN)/python -m pytest -n auto --all

fuzz: $(STAMP)
	$(BIN)/python -m mhc.fuzz --minutes $(MINUTES)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(STAMP)
	sh .ci/wheel-check $(BIN)/python

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist
