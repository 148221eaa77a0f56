# What a person types; `make` alone lists it. CI types `make test` (.ci/run).

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

UV_VERSION := 0.13.8
BIN := .venv/bin
JAR := src/esker/spark/esker-hadoop.jar

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: .venv/.ready $(JAR) ## Install esker into .venv, with the jar for Spark

.PHONY: setup
setup: install postgres ## That, and PostgreSQL's programs: all that working on esker takes

# The lock pins every package with its hashes, the build backend among them, so nothing here depends on the day it is run.
# From scratch whenever the lock changes: pip would leave what was taken off it.
.venv/.locked: requirements.lock scripts/python.sh
	@echo 'installing 1.3 GB of packages into .venv: a few minutes, once' >&2
	"$$(scripts/python.sh)" -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	touch $@

.venv/.ready: .venv/.locked pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: postgres
postgres:
	@scripts/postgres.sh

$(JAR): .venv/.locked scripts/java.sh $(shell find java -type f)
	scripts/java.sh

.PHONY: check
check: .venv/.ready ## All that CI checks besides the tests: lint, format, types, direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: format
format: .venv/.ready ## Mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: test
test: setup check ## Check everything and run all tests: what CI runs (ARGS='-k blob' selects)
	$(BIN)/python -m pytest $(ARGS)

.PHONY: test-services
test-services: setup ## The stores' tests against stronger servers, built with Go and fetched with Maven
	$(BIN)/python -m tests.stronger_services $(ARGS)

.PHONY: sim
sim: .venv/.ready ## A million schedules of the simulator, and all of its mutants (ARGS='--seconds 60')
	$(BIN)/python -m esker.testing.simulation mutants
	$(BIN)/python -m esker.testing.simulation run --schedules 1000000 $(ARGS)

.PHONY: demo
demo: install ## A day of a data engineer, with Spark, in about a minute (KEEP=1: the server stays up)
	@KEEP="$(KEEP)" $(BIN)/python demo/run.py

.PHONY: tour
tour: .venv/.ready ## A tour of versions, branches and merges in Python alone
	@$(BIN)/python demo/tour.py

.PHONY: docs
docs: .venv/.ready ## Build the documentation as a site, in build/site
	$(BIN)/mkdocs build --strict # not --quiet: then it hears no warnings, and is not strict
	@echo "  build/site/index.html"

.PHONY: bench
bench: setup ## All benchmarks (ARGS=--quick: small ones, in two minutes; ARGS='tree lsm': these)
	$(BIN)/python -m bench $(ARGS)

.PHONY: dist
dist: install ## Build wheel and sdist, with the jar, into dist/
	scripts/dist.sh

.PHONY: lock
lock: ## Resolve the dependencies anew into requirements.lock
	"$$(scripts/python.sh)" -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	build/lock/bin/uv pip compile pyproject.toml --extra dev --python-version 3.11 --universal --upgrade --quiet \
		--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--output-file requirements.lock

.PHONY: clean
clean: ## Remove what was built, .venv too
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
