# The few verbs a newcomer types; `make help` lists them.  tox.ini is the full index of what can be run.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Empty counts as not set: hundreds of processes share compiled Python files, where each would compile its own.
export PYTHONDONTWRITEBYTECODE :=

CORE := $(wildcard $(foreach kind,pyx pxd h,kconsumer/_core/*.$(kind) kconsumer/_core/*/*.$(kind)))
# Everything under tests/ that needs no broker and is not fast enough, or not often enough of interest, for `check`.
# Tests with the mark `long` run every night (tests/support/nightly.py).
# What takes long for one test comes first.
SLOWER := $(wildcard tests/test_packaging.py tests/property tests/fuzz tests/brokerless tests/assignors)
PYTEST := $(BIN)/pytest
WORKERS ?= auto
# Tests of sockets and threads wait half of the time.
WAITING_WORKERS ?= $(shell expr $$(nproc) \* 2)
# Tests with brokers wait more than they work.
BROKER_WORKERS ?= $(shell expr $$(nproc) + 2)
FAKE_WORKERS ?= $(shell expr $$(nproc) \* 4)
# A second build, with the sanitizers, of the same generated C files; and the tests that look at bytes, without those of
# the cluster model, which is written in Python, and of tests/fuzz, whose inputs are the first ones of run.py.
# `tox -e asan`, in CI for each change, runs all that need no broker.
SANITIZED := build/sanitized
SANITIZED_TESTS = tests/brokerless/test_dropped_consumers.py $(filter-out $(UNSANITIZED),$(shell grep -lE 'kconsumer\._core(\.[^l]| import)|decode_batches' tests/unit/[!t]*/*.py))
# These decode what other tests decode, to look at what Python does with it.
UNSANITIZED := $(addprefix tests/unit/,public/test_deserializers.py public/test_foreign_methods.py public/test_imports.py \
    public/test_interpreters.py registry/test_registry_columns.py spark/test_spark_schema_ids.py)
SANITIZED_FUZZ ?= 40000
STUBTEST := --mypy-config-file pyproject.toml --allowlist tools/stubtest-allowlist.txt --ignore-unused-allowlist

.PHONY: help setup system system-python build check lint format types unit slower simulate sanitized property fuzz brokerless threads integration integration-fake integration-all kerberos spark test bench figures demo pipeline docs docs-serve wheels clean

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: system $(STAMPS)/package $(STAMPS)/extensions $(STAMPS)/jars  ## make .venv with the package built in place, and fetch the test brokers

system:
	@tools/system-packages $(PYTHON)

system-python:
	@tools/system-packages $(PYTHON) python

$(STAMPS)/venv: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev
	mkdir -p $(STAMPS) && touch $@

# Editable: Python files are read from the tree, extensions are compiled beside their sources.
$(STAMPS)/package: $(STAMPS)/venv pyproject.toml setup.py
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

$(STAMPS)/extensions: $(STAMPS)/package $(CORE)
	$(BIN)/python setup.py -q build_ext --inplace
	touch $@

$(STAMPS)/jars: tests/support/brokers/kafka_jars.py
	$(BIN)/python $<
	touch $@

$(STAMPS)/bench: $(STAMPS)/package
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python tests/support/brokers/kafka_jars.py 4.4.0 tools
	touch $@

build: system $(STAMPS)/extensions  ## compile the extensions whose sources changed

check: build lint types unit  ## the inner loop: lint, types, unit tests

lint: $(STAMPS)/venv  ## ruff (rules and layout) and cython-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint kconsumer

format: $(STAMPS)/venv  ## let ruff fix and lay out what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMPS)/extensions  ## mypy, and the stubs of the compiled modules against what they compile to
	$(BIN)/mypy
	$(PYTEST) tests/typing -q --timeout 600
	$(BIN)/stubtest kconsumer._core $(STUBTEST)

unit: $(STAMPS)/extensions  ## unit tests, and the rules of layers, words and sizes; no broker
	$(PYTEST) tests/unit tests/test_layering.py tests/test_compiled_modules.py tests/test_language.py tests/test_budget.py -n $(WORKERS) -q

slower: $(STAMPS)/extensions  ## property, fuzz, protocol, brokerless and packaging tests, without those of `threads`; no broker
	$(PYTEST) $(SLOWER) -n $(WAITING_WORKERS) --dist worksteal -q -m 'not long and not network_thread'

# These tests compute, with low priority in `make test`. Their timeout only ends a test that hangs.
simulate: $(STAMPS)/extensions  ## hours of groups and faults in virtual time, and the tests of the simulation; no broker
	$(PYTEST) tests/simulation -n $(WORKERS) -q --timeout 600 -m 'not long'

$(STAMPS)/sanitized: $(STAMPS)/extensions setup.py tools/copy_tree.py
	$(BIN)/python tools/copy_tree.py $(SANITIZED)
	cp -p kconsumer/_core/*.c $(SANITIZED)/kconsumer/_core/
	cd $(SANITIZED) && KCONSUMER_BUILD=asan-quick $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace egg_info
	touch $@

# Left out: what proves limits with gigabytes, which sanitizers copy whenever they grow.
sanitized: system $(STAMPS)/sanitized  ## hostile bytes and decoder tests under the address and undefined-behaviour sanitizers
	$(BIN)/python tools/copy_tree.py $(SANITIZED)
	cd $(SANITIZED) && export PYTHONPATH=$$PWD:$$PWD/assignors && \
	    tools/sanitized $(CURDIR)/$(BIN)/python tests/fuzz/run.py --inputs $(SANITIZED_FUZZ) && \
	    tools/sanitized $(CURDIR)/$(PYTEST) $(SANITIZED_TESTS) -n $(WORKERS) -q --timeout 600 \
	        -k 'not bombs_raise and not eight_million'

threads: $(STAMPS)/extensions  ## brokerless tests of the network thread, with threads that switch every microsecond; no broker
	$(BIN)/python tests/threads.py --switch 1e-6 -- $(shell grep -lE 'mark\.network_thread' tests/brokerless/*.py) -n $(WAITING_WORKERS)

property fuzz brokerless: $(STAMPS)/extensions
	$(PYTEST) tests/$@ -n $(WORKERS) -q

INTEGRATION := $(PYTEST) tests/integration
REAL_BROKERS = -n $(BROKER_WORKERS) --dist loadfile --no-loadscope-reorder

integration-fake: $(STAMPS)/extensions  ## integration tests on the cluster model (T= picks tests)
	$(INTEGRATION) --cluster=fake -n $(FAKE_WORKERS) --dist worksteal $(if $(T),-k '$(T)',-m 'not long')

integration: setup $(STAMPS)/postgres  ## those that need a real Kafka (T= picks from all of them, KAFKA_VERSION= another broker)
	$(INTEGRATION) $(REAL_BROKERS) $(if $(T),-k '$(T)',--cluster=kafka-where-needed -m 'not long')

integration-all: setup $(STAMPS)/postgres  ## all of them on a real Kafka, with those that `make test` leaves out
	$(INTEGRATION) $(REAL_BROKERS)

$(STAMPS)/kerberos: pyproject.toml $(STAMPS)/package
	@tools/system-packages $(PYTHON) kerberos
	$(BIN)/python -m pip install --quiet --group kerberos
	touch $@

kerberos: setup $(STAMPS)/kerberos  ## logins by Kerberos, with a key distribution centre of MIT (installs it)
	$(PYTEST) tests/kerberos -q

$(STAMPS)/postgres:
	@tools/system-packages $(PYTHON) postgres
	mkdir -p $(STAMPS) && touch $@

spark: setup $(STAMPS)/postgres  ## tests in a real Spark session, and records of Spark's own Kafka source (T= picks tests)
	$(PYTEST) tests/spark -q -n 2 --dist loadfile --no-loadscope-reorder $(if $(T),-k '$(T)',-m 'not long')

# These compute, and their results do not depend on the time they take.
COMPUTING := types simulate sanitized

test: setup  ## what every change must pass, from a fresh clone; prints how long each part took (tox.ini has more)
	@$(BIN)/python tools/run_parts.py lint unit threads integration-fake slower integration spark \
	    --background $(COMPUTING)

bench: setup $(STAMPS)/bench  ## compare with other clients (ARGS='--quick' for a smoke run)
	$(BIN)/python benchmarks/compare/run.py $(ARGS)

figures: setup $(STAMPS)/bench  ## write the tables of benchmarks/README.md and README.md (ARGS=--measure measures before)
	$(BIN)/python benchmarks/publish.py $(ARGS)

demo: system-python $(STAMPS)/package $(STAMPS)/extensions $(if $(and $(shell command -v java),$(shell command -v mvn)),$(STAMPS)/jars)  ## consume a topic the demo fills (BOOTSTRAP=host:port TOPIC=name to use your own)
	$(BIN)/python examples/demo/run.py $(if $(BOOTSTRAP),--bootstrap '$(BOOTSTRAP)') $(if $(TOPIC),--topic '$(TOPIC)')

$(STAMPS)/pipeline: $(STAMPS)/package
	$(BIN)/python -m pip install --quiet --group pipeline
	touch $@

pipeline: setup $(STAMPS)/pipeline  ## orders from a topic to cleaned Parquet, revenue by the minute and a plot of it, on Spark
	$(BIN)/python examples/pipeline/run.py $(ARGS)

$(STAMPS)/packaging: pyproject.toml
	test -x build/packaging-venv/bin/python || $(PYTHON) -m venv build/packaging-venv
	build/packaging-venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	build/packaging-venv/bin/python -m pip install --quiet --group packaging
	mkdir -p $(STAMPS) && touch $@

wheels: system-python $(STAMPS)/packaging  ## the sdist and this machine's wheel in dist/, built twice, compared, checked and tried
	build/packaging-venv/bin/python tools/build_wheels.py

# In an environment of its own, because the site needs neither the package built nor what tests need.
DOCS := build/docs-venv

$(DOCS)/stamp: pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(DOCS)/bin/python -m pip install --quiet --group docs
	touch $@

docs: $(DOCS)/stamp  ## the documentation site in build/site; warnings and dead links are errors
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
	$(DOCS)/bin/python docs/site/check.py

docs-serve: $(DOCS)/stamp  ## the documentation site at http://127.0.0.1:8000, built again when a page changes
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

clean:  ## remove everything made here (the jar cache in the home folder stays)
	rm -rf $(VENV) build dist .tox .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find kconsumer assignors tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -f kconsumer/_core/*.so kconsumer/_core/*.c kconsumer/_core/*.html
