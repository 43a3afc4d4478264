# Each target makes its own virtual environment when it is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin
# Tests that measure links: nothing else runs beside them.
UNMEASURED := $(addprefix tests/lab/links/,test_holder.py test_link.py test_network.py)
ALONE := $(filter-out $(UNMEASURED),$(wildcard tests/lab/links/test_*.py))

# Tests and runs start many processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check bench docs clean

demo: .venv/ready
	$(BIN)/thinwire demo

test: .venv/ready
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(ALONE))
	$(BIN)/python -m pytest $(ALONE)

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python -m benchmarks

# Builds the site into site/. Its tools are installed on the first call only, so that no other target waits for them.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'setuptools>=77' torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
