# Two commands do everything on a fresh machine: `make test` and `make fuzz`. Both make their own virtual environment.
PYTHON ?= python3
VENV ?= .venv
MINUTES ?= 1

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

unexport PYTHONDONTWRITEBYTECODE  # the suite starts a hundred processes: each would compile the package anew

.PHONY: test test-all fuzz lint wheel docs docs-links clean

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

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file docs/mkdocs.yml

docs-links: $(STAMP)
	$(BIN)/python -m tests.support.external_links

$(VENV)/.installed-docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $(VENV)/.installed-docs

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist
