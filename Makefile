# The two commands of the README, and what we use ourselves. Needs Python 3.11+, make, a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := benchmarks/env/lock.txt
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
MANIFESTS := pyproject.toml $(PLUGINS:=/pyproject.toml)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK)

.PHONY: bench test check fix perf picture clean

bench: $(VENV)/.bench
	$(BIN)/panelbench run benchmarks/quickstart.toml

test: $(VENV)/.test check
	$(BIN)/python -m pytest --numprocesses=auto

check: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy harness $(PLUGINS:=/src)
	$(BIN)/lint-imports

fix: $(VENV)/.test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

perf: $(VENV)/.test
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest benchmarks/perf \
		--capture=no --benchmark-columns=min,median,max,rounds

picture: $(VENV)/.bench  # the one in the README; needs Chromium
	$(BIN)/panelbench report leaderboards/synthesis_physionet2012.jsonl.gz --html results/picture.html
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1240,1180 \
		--screenshot=docs/page.png results/picture.html

clean:
	rm -rf $(VENV) results

$(VENV)/.bench: $(LOCK) $(MANIFESTS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Panelbench needs Python 3.11 or newer; name one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing Panelbench and its plugins into $(VENV) (once, about a minute)"
	$(PIP) pip hatchling editables
	$(PIP) --no-build-isolation --editable . $(addprefix --editable ./,$(PLUGINS))
	@touch $@

$(VENV)/.test: $(VENV)/.bench
	@echo "Installing what tests need"
	$(PIP) --no-build-isolation --editable '.[test]' --editable './plugins/fusion[learnt]' --editable './plugins/path[learnt,models,opacus]'
	@touch $@
