# Needs make and Python 3.11 or newer, nothing else.
#
#   make demo    make 12 million rows, run one query online and watch it sharpen
#   make test    run the tests but the slow ones, three files at a time
#   make test-slow  many more random queries, and what takes more than 0.75 core-seconds: browsers, clusters, figures
#   make check   all that must hold before a commit: tests, lint, format, types, two minutes of the grid
#   make grid    ask random kinds of queries of random kinds of tables beside plain DuckDB, for MINUTES
#   make docs    build the documentation's site, into site/index.html
#   make bench   run the benchmarks (minutes, and gigabytes of TPC-H data)
#   make clean   remove the environment and everything that was made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := bootstrap dashboards engine lab relaqs tpch

# The environment belongs to these files' content and to this folder: a change of either makes a new one.
# A fingerprint in the name, not a time stamp, because a file may be edited while the install is running.
FINGERPRINT := $(firstword $(shell { cat pyproject.toml constraints.txt; pwd; } | cksum))
INSTALLED := $(VENV)/installed-$(FINGERPRINT)

# Tests wait for processes a sixth of their time. A third file uses the two cores meanwhile.
AT_ONCE := 3

# Tests start hundreds of processes. Without bytecode files each would compile all of its sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow lint format-check types check grid docs bench clean
.NOTPARALLEL:

help:
	@sed -n 's/^#   //p' Makefile

demo: $(INSTALLED)
	@$(BIN)/relaqs demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -m "not slow and not alone" -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m "alone and not slow"

test-slow: $(INSTALLED)
	RELAQS_PART=$(PART) $(BIN)/python -m pytest -m slow -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder
	$(GRID) --seed 1$(SEED) --minutes $(SLOW_MINUTES)

lint: $(INSTALLED)
	$(BIN)/ruff check .

format-check: $(INSTALLED)
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy --num-workers 2

check: lint format-check types test grid

# Another seed each day. The seed is printed with what fails: make grid SEED=N asks the same again.
SEED ?= $(shell date +%j)
MINUTES ?= 2
SLOW_MINUTES ?= 20
PART ?= 0/1
GRID := $(BIN)/python -m benchmarks.grid --processes 2

grid: $(INSTALLED)
	$(GRID) --seed $(SEED) --minutes $(MINUTES)

docs: $(INSTALLED)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs site

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo-data benchmarks/results dist site
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) benchmarks tests -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is not Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[dev]"
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests/' $(VENV) || true  # on all cores; pip compiles on one
	@touch $@
