# stateward on one machine. `make run` and `make test` set up what they need; nothing else has to be done first.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help setup system run test test-fast test-nightly mutation chaos chaos-training lint type lock cluster-lock image practice-image practice-policy slurm-up slurm-down clean

# Python 3.11 or 3.12. The environment lies in the checkout; downloads are cached outside it.
VENV ?= .venv
PY := $(VENV)/bin/python
CONFIG ?= configs/practice.yaml
RUN_DIR ?= runs/practice
SEEDS ?= 1
SLURM_DIR ?= runs/slurm
ROUNDS ?= 40
TRAINING_ROUNDS ?= 6
SEED ?= 1
SAMPLE ?= 100
TALLY ?= runs/chaos-$(SEED).jsonl
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH
# Without bytecode on the disk every process of a run would compile torch, vLLM and Verl anew: half a minute each.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

run: setup ## the practice campaign: probe, curate, train, merge, evaluate, report (continues where it stopped)
	@$(PY) jobs/pipeline.py --config $(CONFIG) --run-dir $(RUN_DIR) --seeds $(SEEDS)

setup: $(VENV)/.ready ## the Python environment (again only when its inputs changed)

$(VENV)/.ready: pyproject.toml containers/practice.lock containers/setup.sh
	@bash containers/setup.sh $(VENV)
	@touch $@

system: ## Debian packages that the slow tests use (as root; on other systems they are skipped, saying why)
	@bash containers/debian.sh

test: setup system lint type ## the tests, with real engines where this machine has them
	@$(PY) tests/run.py

test-nightly: test ## the same, what takes longer, and things killed at random for an hour
	@$(PY) tests/run.py --nightly
	@$(MAKE) chaos chaos-training

test-fast: setup ## the unit tests, under two minutes
	@$(PY) -m pytest -q -n 2 --dist loadscope -m "not (engines or verl or slurm or apptainer or typesense or browser or slow or nightly or chaos)"

mutation: setup ## SAMPLE (100) changes of each group of modules, and whether a fast test notices (docs/testing.md)
	@$(PY) tools/known_mutations.py
	@$(PY) tools/mutation.py --sample $(SAMPLE) --seed $(SEED)

chaos: setup system ## ROUNDS (40) of killing something at random under campaigns on a real Slurm; half an hour
	@$(PY) tests/slurm/chaos/run.py --rounds $(ROUNDS) --seed $(SEED) --tally $(TALLY)

chaos-training: setup ## TRAINING_ROUNDS (6) of killing something at random under real training; a quarter of an hour
	@CHAOS_ROUNDS=$(TRAINING_ROUNDS) CHAOS_SEED=$(SEED) $(PY) -m pytest -qs -m chaos tests/verl

lint: setup ## ruff, and the import contracts of pyproject.toml
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(PY) tools/import_contracts.py

type: setup ## mypy --strict on the library
	@$(VENV)/bin/mypy

slurm-up: setup system ## a real Slurm on this machine, to practise on (runs/slurm)
	@mkdir -p runs && $(PY) -m stateward.cluster.one_machine up $(SLURM_DIR)

slurm-down: setup ## end it
	@$(PY) -m stateward.cluster.one_machine down $(SLURM_DIR)

practice-policy: setup ## make the tiny policy again from its recipe
	@$(PY) -m stateward.practice.policy.make

lock: setup ## write containers/practice.lock from the environment as it is
	@$(PY) containers/freeze.py > containers/practice.lock.new && mv containers/practice.lock.new containers/practice.lock

cluster-lock: setup ## resolve containers/requirements.lock anew from pyproject.toml (UPGRADE=1: the newest that fit)
	@$(PY) containers/lock.py resolve $(if $(UPGRADE),--upgrade)

image: setup ## the cluster's image, stateward.sif (apptainer and an image registry; docs/container.md)
	@bash containers/image.sh stateward.sif

practice-image: setup system ## its CPU twin, which needs no image registry; prints where it lies
	@PYTHON=$(PY) bash containers/practice-image.sh

clean: ## remove the environment and the practice run
	rm -rf $(VENV) runs/practice
