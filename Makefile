# For users: `make demo` and `make test`. Every command sets up what it needs, once.
PYTHON ?= python3
BIN := .venv/bin
# without bytecode, every process compiles every file again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-types test-slow test-long durations campaign mutants check docs bench clean

demo: .venv/ready
	$(BIN)/interp demo $(ARGS)

test: .venv/ready
	$(BIN)/pytest -n 2 --dist loadfile --durations 10 --durations-min 1 $(ARGS)

# One fast item of every test, with the shapes and types of every call checked. Fails if a public function is not reached.
test-types: .venv/ready
	$(BIN)/pytest -n 2 --dist loadfile --jaxtyping-packages=interp,hooks,shapes.checked $(ARGS)

# Trains small models; products of options that the default tests only sample.
test-slow: .venv/ready
	$(BIN)/pytest -m "slow and not long" -n 2 --dist loadfile --durations 10 --durations-min 1 $(ARGS)

# Whole studies and suites of models: before a release, and after a change of training or of the audit.
test-long: .venv/ready
	$(BIN)/pytest -m long -n 2 --dist loadfile --durations 10 $(ARGS)

# Records how long items take, which says what is default, slow or long; on an idle machine, after tests were added.
durations: .venv/ready
	$(BIN)/pytest -m "not long" -n 2 --dist loadfile --record-durations $(ARGS)

# Thousands of tries to lose something or to let something in. ARGS="--share 0.1" runs a tenth.
campaign: .venv/ready
	$(BIN)/python tests/campaigns/campaign.py $(ARGS)

# What share of small breaks in core files do the tests notice? ARGS="--n 30 interp/core" chooses; it resumes.
mutants: .venv/ready
	$(BIN)/python tests/campaigns/mutants.py $(ARGS)

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/python tests/check_sources.py

# The documentation site, into docs/_build/html: notebooks run, warnings are errors.
docs: .venv/ready
	$(BIN)/sphinx-build -W --keep-going -q -j 2 docs docs/_build/html

bench: .venv/ready
	$(BIN)/python -m benchmarks

# torch first, so that no other requirement pulls in another build of it.
.venv/ready: pyproject.toml constraints.txt examples/unmyopic-studies/pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]" --editable examples/unmyopic-studies
	touch .venv/ready

clean:
	rm -rf .venv runs
