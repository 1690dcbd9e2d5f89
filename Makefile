# make demo: install, train a small network, evaluate it on longer sequences, solve an example
# make test: linters, type checker, the whole test suite; about seven minutes on two cores
# make test-matrix: a short suite with the oldest and the newest torch, each in an environment of its own
# make docs: the documentation site in build/site; a warning or a broken link is an error
# make format: ruff's formatter, and the fixes it can make itself

PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo-reverse
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo test test-matrix docs format clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[train]'
	touch $@

.venv/ready-dev: .venv/ready
	$(INSTALL) '.[dev]'
	touch $@

.venv/ready-docs: .venv/ready
	$(INSTALL) '.[docs]'
	touch $@

demo: .venv/ready
	rm -rf $(DEMO)
	$(BIN)/riffle train reverse --recipe small --out $(DEMO) --device cpu
	$(BIN)/riffle eval $(DEMO) --examples 32 --device cpu
	$(BIN)/riffle solve reverse --run $(DEMO) 1 2 3 4 5 6 7 8 9 10 11 1 2 3 5 8

test: .venv/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses 2

test-matrix:
	$(PYTHON) tests/matrix.py

docs: .venv/ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: .venv/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv dist build
