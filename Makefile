# Two commands: `make run` shows what this is, `make test` checks it. Both set up .venv when it is missing.

PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: run test docs bench package faults fuzz clean

run: $(INSTALLED)
	@$(BIN)/python examples/tour.py

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		echo "tests of the page in a browser are skipped: there is no Chromium (apt-get install chromium)"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadscope

docs: $(INSTALLED)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site is site/index.html"

bench: $(INSTALLED)
	$(BIN)/python benchmarks/generator.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/solving.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/explorer.py

package: $(INSTALLED)
	$(BIN)/python benchmarks/package.py check

faults: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/faults.py

fuzz: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) atheris==3.0.0
	for target in text checkpoint readers; do OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py $$target 900 || exit 1; done

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..."; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "Python's venv module is needed: apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) torch --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv
