# make demo   set up .venv and run the main job    make lint   ruff, format, types
# make test   add the test tools and run the tests  make clean  remove .venv and caches
# make fuzz   random inputs: no traceback, no silent success (half a minute)
# make readme fill README.md and docs/ from cards, results and commands (needs MNIST)
# make docs   the documentation as HTML, in docs/_build/html
# make playground   a page that runs networks in the browser, also part of the documentation (needs npm)
# make bench  measure speed, memory and scaling (quarter of an hour, needs MNIST and a quiet machine)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO ?= runs/demo
PROCESSES ?= -n 3 --dist worksteal  # on two cores: some wait for browsers and other processes

.PHONY: demo test lint fuzz docs playground readme bench clean
.DELETE_ON_ERROR:

$(VENV)/.ready: pyproject.toml setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "capsviz needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(PIP) -e '.[test]'
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/capsviz rotate --digit 2 --output $(DEMO) --force
	$(BIN)/capsviz routing --digit 2 --output $(DEMO) --force
	@echo "The figures are in $(DEMO)"

test: export PYTHONDONTWRITEBYTECODE =  # compiled once, not by each of many processes
test: $(VENV)/.ready-test
	$(BIN)/python -m pytest -q $(PROCESSES)

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: $(VENV)/.ready-test
	$(BIN)/python -m benchmarks.fuzz --inputs 240

docs: $(VENV)/.ready
	@test -f $(VENV)/.ready-docs || $(PIP) -e '.[docs]'
	@touch $(VENV)/.ready-docs
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html"

playground: $(VENV)/.ready-test
	$(BIN)/python docs/playground/build.py

readme: $(VENV)/.ready
	$(BIN)/python -m benchmarks.readme

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.layers
	$(BIN)/python -m benchmarks.scaling --again

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache
