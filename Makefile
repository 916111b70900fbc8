# make demo   sets up and runs the main job
# make test   sets up and runs all checks and tests
# make test-official   runs the official tool on all recordings beside ours
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
CONSTRAINTS = -c constraints.txt

.PHONY: demo test test-official check lab docs clean

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q $(CONSTRAINTS) torch==2.13.0
	$(BIN)/python -m pip install -q $(CONSTRAINTS) -e .
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install -q $(CONSTRAINTS) -e '.[test]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python notebooks/demo.py

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	./tests/install_chromium.sh
	$(BIN)/python -m pytest -n 2 --nbmake tests notebooks

test-official: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 -m official_all tests/official

lab: $(VENV)/.demo
	$(BIN)/jupyter lab notebooks/01-first-comparison.ipynb

docs: $(VENV)/.demo
	$(BIN)/python -m pip install -q $(CONSTRAINTS) -e '.[docs]'
	$(BIN)/sphinx-build -W -b html docs docs/_build/html

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
