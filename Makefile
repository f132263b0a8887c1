# The front door. Everything that a target needs, it installs into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed-with-docs
OUT := out
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check
# tests that wait until time limits have passed, or compute for seconds, are for `make check`
WAITING := -m "not waiting"

.PHONY: browser-test help demo test coverage check lint types contracts fuzz bench accuracy docs pages clean

help:
	@echo "make demo    the main job on this machine, in a minute"
	@echo "make test    the tests, but for some that wait or compute for seconds"
	@echo "make check   what CI runs: ruff, mypy, import contracts, tests, the documentation, fuzz, spec lint"
	@echo "make coverage  all tests, and which lines of perfmodel none of them runs"
	@echo "make fuzz    a minute of damaged input files, which may end in a message and in nothing else"
	@echo "make bench   the benchmarks behind the claims of speed"
	@echo "make docs    the documentation, into site/index.html"
	@echo "make browser-test  the pages of perfmodel report in headless chromium (needs Debian's chromium)"
	@echo "make pages   runs the examples of README.md and docs/ again and writes what they print"
	@echo "make accuracy  docs/accuracy*.md: the model against public measurements (minutes; needs PERFMODEL_DATA)"

# half of pip's time is spent on compiling modules, few of which anybody imports
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "perfmodel needs Python 3.11 or later; set PYTHON=python3.x" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(PIP) --no-compile --editable '.[bench,dev,docs]'
	@touch $@

demo: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh $(OUT)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(WAITING)

coverage: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports --no-cache

fuzz: $(STAMP)
	$(BIN)/python scripts/fuzz.py --count 4000 --seconds 80 --patience 60 --save $(OUT)/fuzz

# what needs one processor runs two at a time, the longest first; the tests then have both
check: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 types lint contracts fuzz docs
	$(MAKE) --no-print-directory test WAITING=
	$(BIN)/perfmodel hardware lint

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

accuracy: $(STAMP)
	$(PIP) --editable '.[parquet]'
	$(BIN)/python scripts/accuracy.py

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pages: $(STAMP)
	$(BIN)/python scripts/pages.py

browser-test: $(STAMP)
	@command -v chromium >/dev/null || { echo "chromium is not installed: apt-get install chromium" >&2; exit 2; }
	$(PIP) --editable '.[browser]'
	$(BIN)/python -m pytest -m browser tests/render/html

clean:
	rm -rf .venv $(OUT) site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
