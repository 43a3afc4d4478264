# Each target creates the virtual environment if it is missing or older than the files it depends on.
PYTHON ?= python3
BIN := .venv/bin
# Tests that measure links run alone, after the others.
UNMEASURED := $(addprefix tests/lab/links/,test_holder.py test_link.py test_network.py)
ALONE := $(filter-out $(UNMEASURED),$(wildcard tests/lab/links/test_*.py))

# Tests and runs start many processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check bench clean

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

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'setuptools>=77' torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
