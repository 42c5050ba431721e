# make demo | own | run CONFIG=FILE | test | lint | schemas | bench | examples | cluster-up NODES=12 | cluster-down | setup [CUDA=1] | partial | lock
SHELL := bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
PYTHON ?= python3
NODES ?= 12
SNAKEMAKE = snakemake --profile profiles/local
.PHONY: setup demo own run test test-here test-slurm lint schemas bench examples cluster-up cluster-down partial lock

demo: setup
	$(SNAKEMAKE) --configfile config/demo.yaml
	@cat results/demo/tables/comparison.md

# a start for a training of your own; the study's folder of results is results/own
own:
	@test ! -e own || { echo "own/ is there already; nothing is written" >&2; exit 1; }
	cp -r resources/own own
	@echo "own/training.py has a model and its data, own/config.yaml the grid."
	@echo "Measure it on this machine: make run CONFIG=own/config.yaml"

# a sweep on this machine, processes as nodes, and its table
run: setup
	$(SNAKEMAKE) --configfile $(CONFIG)
	@sed -n 's/^study: *//p' $(CONFIG) | xargs -I{} cat results/{}/tables/comparison.md

test: setup
	provision/virtual/install
	$(MAKE) --jobs=3 --output-sync=line lint test-here test-slurm

# on this machine alone; three at a time, because many tests wait
test-here:
	pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/workflow tests/unit

# on virtual Slurm clusters; jobs wait for the scheduler most of the time
test-slurm:
	pytest tests/scheduler tests/slurm

setup: .venv/.installed$(CUDA)

lint: setup
	ruff check . && ruff format --check .
	snakefmt --check Snakefile workflow/Snakefile workflow/rules
	mypy
	workflow/schemas/generate.py --check
	snakemake --lint --configfile config/demo.yaml

# schemas of the configuration and of records, and the tables of config/README.md, from the types
schemas: setup
	workflow/schemas/generate.py

bench: setup
	python benchmarks/dry_run.py
	python benchmarks/aggregation.py

# every example, on this machine and on a virtual Slurm cluster
examples: setup .venv-tf_keras .venv-jax .venv-torch
	provision/virtual/install
	pytest tests/examples

# the environments of examples with packages of their own, 3.5 GB in all
.venv-%: examples/requirements-%.txt examples/make-environment | setup
	examples/make-environment $*

# tables and plots of whatever has finished, for the configuration in config/ (or CONFIG=FILE)
partial: setup
	$(SNAKEMAKE) partial $(if $(CONFIG),--configfile $(CONFIG))

cluster-up: setup
	provision/virtual/install
	provision/virtual/cluster up --nodes $(NODES)

cluster-down:
	provision/virtual/cluster down

# the environment; CUDA=1 adds TensorFlow's CUDA libraries. uv comes first, from the same lock;
# bytecode is compiled here once and not by every rank of every job
.venv/.installed$(CUDA): requirements.txt $(if $(CUDA),requirements-cuda.txt)
	$(PYTHON) -m venv .venv
	awk '/^uv==/ {on = 1} on; on && !/\\$$/ {exit}' requirements.txt >.venv/uv.txt
	pip install --quiet --require-hashes --requirement .venv/uv.txt
	uv pip sync --quiet --compile-bytecode --python .venv/bin/python $^
	touch $@

# pin everything anew: hashes, and no index in the files
lock: setup
	for name in requirements requirements-cuda examples/requirements-{tf_keras,jax,torch}; do \
	    uv pip compile --quiet --universal --upgrade --generate-hashes --python-version 3.11 \
	        --custom-compile-command "make lock" $$name.in --output-file $$name.txt || exit; done
