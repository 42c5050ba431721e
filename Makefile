# `make help` lists what users need (##), `make help-dev` the other targets (#-).
SHELL := bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
SNAKEMAKE = snakemake --profile profiles/local
# a part of the environment has a separate lock: TRAINER=1 adds the built-in trainer (TensorFlow),
# CUDA=1 the trainer with its CUDA libraries, PARQUET=1 the export of runs.parquet, DEV=1 what tests
# need. A stamp for each: what is installed stays, also when a lock has changed
STAMP = .venv/.installed
PARTS = trainer cuda parquet dev
INSTALLED := $(patsubst $(STAMP)-%,%,$(wildcard $(STAMP)-*))
CHOSEN = $(if $(TRAINER),trainer) $(if $(CUDA),cuda) $(if $(PARQUET),parquet) $(if $(DEV),dev)
# $(call locks,PARTS...)
locks = requirements.txt $(patsubst %,requirements-%.txt,$(sort $1 $(if $(filter cuda,$1),trainer) \
    $(if $(filter dev,$1),trainer parquet)))
# what the recipe of a stamp installs
LOCKS = $(call locks,$(patsubst $(STAMP)-%,%,$(filter $(STAMP)-%,$@)) $(INSTALLED) $(CHOSEN))
# the project's own plugins of Snakemake, installed as links to their folders
PLUGINS = $(wildcard plugins/snakemake-*/pyproject.toml)
# packages that the user's training needs, installed on top of the lock, whose versions stay
OWN = $(wildcard own/requirements.txt)
# WHEELHOUSE=DIR: all comes from this folder, and what the site has set for pip and uv does not count
CLOSED = $(if $(WHEELHOUSE),PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= UV_NO_CONFIG=1)
LINKS = $(if $(WHEELHOUSE),--no-index --find-links '$(WHEELHOUSE)/wheels')
# begins a recipe that is silent for long: a dot every 5 s shows that it works
DOTS = (while sleep 5 && kill -0 $$$$; do printf .; done) 2>/dev/null & trap "kill $$!; echo" EXIT;
.DEFAULT_GOAL := help
# folders of the tests of `make test` and `make test-full`; those that wait most come first.
# There are more workers than cores, because many tests wait; each costs ten seconds of CPU time
TESTED = $(addprefix tests/,slurm checks soak scheduler workflow unit)
PROCESSES = $(shell expr $$(nproc) + 4)
test: PROCESSES = $(shell expr $$(nproc) + 2)
PYTEST = pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder --junitxml=.pytest_cache/$@.xml
# programs that tests run in separate environments
TOOLS = aws-parallelcluster cfn-lint gpuhunt packages pandoc roc-validator snakedeploy
# environments with TensorFlow, as users have them; Python 3.11 or 3.12
VERSIONS = tensorflow-2.16 tensorflow-2.18 tensorflow-2.21
# all targets share .venv
.NOTPARALLEL:
.PHONY: help help-dev setup wheelhouse tools packages clouds demo own run large-batch peers exchange view partial test test-full versions check test-closed lint schemas docs screenshots aa bench all-reduce projection simulate fuzz fuzz-models agreement scale soak outage mutants examples cluster-up cluster-down lock

help help-dev:
	@sed -nE 's/^([a-z-]+):[^#]*$(if $(filter help,$@),##,#-) (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
	@echo "Start: make demo. More targets: make help-dev. All else: README.md and docs/."

demo: $(STAMP)-trainer ## six runs on this machine, a table and a page; 4 minutes
	@$(SNAKEMAKE) --configfile config/demo.yaml
	@echo "make view opens the page, results/demo/report.html"

# a template for your training; its results are in results/own. -p: the empty requirements.txt keeps
# its age, so that `make setup` has nothing to do
own: $(STAMP)-trainer ## write own/, a template for your training
	@test ! -e own || { echo "own/ exists already; nothing was written" >&2; exit 1; }
	cp -rp resources/own own
	@echo "own/training.py has a model and its data, own/config.yaml the grid."
	@echo "Measure it on this machine: make run CONFIG=own/config.yaml"

# a sweep on this machine, processes as nodes, and its table
run: setup ## CONFIG=own/config.yaml: a sweep on this machine, and its table
	@test -f "$(CONFIG)" || { echo 'CONFIG: "$(CONFIG)" is not a file; write make run CONFIG=own/config.yaml' >&2; exit 1; }
	@$(SNAKEMAKE) --configfile $(CONFIG)

# the recipe is chosen on examples held out of the training data, then reported on the test data
large-batch: $(STAMP)-trainer #- accuracy of large batches on MNIST and CIFAR-10; hours
	@$(SNAKEMAKE) --configfile studies/large-batch/choice.yaml --resources training_runs=2
	@$(SNAKEMAKE) --configfile studies/large-batch/config.yaml --resources training_runs=2
	@benchmarks/large_batch.py results/large-batch/runs.csv \
		--choice results/large-batch-choice/runs.csv

# each network is a study; NETWORK=FILE is a custom one (benchmarks/peers/network_file.py)
NETWORKS = $(or $(NETWORK),$(patsubst %,benchmarks/peers/networks/%.py,cnn residual transformer))
peers: $(STAMP)-trainer .venv-jax .venv-torch #- the same trainings on Keras, PyTorch and JAX, or of NETWORK=FILE; hours
	$(if $(filter %networks/cnn.py,$(NETWORKS)),@$(SNAKEMAKE) -- results/datasets/mnist.npz)
	@mkdir -p results; set -e; for network in $(NETWORKS); do \
	    study=results/peers-$$(basename $$network .py).yaml; \
	    benchmarks/peers/study.py $$network $(if $(STEPS),--steps $(STEPS)) \
	        $(if $(REPEATS),--repeats $(REPEATS)) >$$study; \
	    $(SNAKEMAKE) --configfile $$study; \
	done
	@set -o pipefail; benchmarks/peers/ratios.py $(patsubst %.py,results/peers-%/runs.csv,$(notdir $(NETWORKS))) | tee results/peers.md

exchange: setup .venv-torch #- estimated exchange of PyTorch over a slow link, as root; ten minutes
	@benchmarks/exchange.py

view: ## open the newest page, or the page of STUDY=demo
	@page=$$(ls -t results/$(or $(STUDY),*)/report.html 2>/dev/null | head -1); \
	test "$$page" || { echo "results/$(or $(STUDY),*)/report.html: no such page; make demo makes one" >&2; exit 1; }; \
	echo "$(CURDIR)/$$page"; python3 -m webbrowser "file://$(CURDIR)/$$page" >/dev/null || true

# test-full has the tests marked `full`, test all others; tests/progress.py prints what runs
test: $(STAMP)-dev ## lint and quick tests, on a virtual Slurm cluster too; ten minutes on 2 cores
	provision/virtual/install
	$(PYTEST) -m "not full" $(TESTED)

test-full: $(STAMP)-dev tools #- the other tests: all combinations, faults, simulated sweeps; half an hour
	provision/virtual/install --accounting --late-files --containers --pages
	$(PYTEST) -m full $(TESTED)

versions: $(STAMP)-dev $(VERSIONS:%=.tools/%/.installed) #- the trainer in three releases of TensorFlow, 2 GB each
	set -e; for name in $(VERSIONS); do TRAINER_PYTHON=$(CURDIR)/.tools/$$name/bin/python $(PYTEST) \
	    tests/versions tests/unit/test_oracle_*.py tests/workflow/test_users_tensorflow.py \
	    -k "fit_and_demo or two_replicas or ordinary or xla or users_tensorflow"; done

check: $(STAMP)-dev #- a minute: style, types, and the tests of what has changed since main
	ruff check . && ruff format --check .
	mypy
	@tests=$$(tests/changed.py $(or $(SINCE),main)) && test -z "$$tests" || \
	    pytest --quiet --numprocesses 2 --dist loadfile -m "not full" $$tests

# as on a machine without internet: set-up from a wheelhouse, the demo, tests of the trainer
test-closed: $(STAMP)-dev #- set-up, demo and tests in a network without a route
	pytest --durations=0 tests/closed

setup: $(or $(CHOSEN:%=$(STAMP)-%),$(STAMP)) ## the environment in .venv; TRAINER=1 adds TensorFlow, CUDA=1 also CUDA
	$(if $(WHEELHOUSE),@provision/closed/wheelhouse.py take '$(WHEELHOUSE)')

# for machines without internet, where `make setup WHEELHOUSE=DIR` takes all from it
wheelhouse: $(STAMP)-trainer #- wheelhouse.tar: packages and data of CONFIG for machines without internet
	@provision/closed/wheelhouse.py make wheelhouse --locks $(call locks,trainer $(CHOSEN)) \
	    $(OWN:%=--own %) --config $(or $(CONFIG),config/config.yaml config/demo.yaml) \
	    $(if $(TARGET_PYTHON),--python $(TARGET_PYTHON)) $(if $(TARGET_GLIBC),--glibc $(TARGET_GLIBC)) \
	    $(if $(TARGET_MACHINE),--machine $(TARGET_MACHINE))
	@tar --create --file wheelhouse.tar wheelhouse
	@echo "all of it: wheelhouse.tar; next: docs/closed-network.md"

# each in .tools/, because their packages exclude each other and the workflow's
tools: $(TOOLS:%=.tools/%/.installed) .tools/axe-core/.installed #- what tests and `make clouds` need, in .tools/

# executor and logger plugins, observer, virtual cluster; nothing is published
packages: .tools/packages/.installed #- wheels and source distributions in dist/, checked by twine
	.tools/packages/bin/python plugins/build_packages.py dist

# against provision/clouds/platforms.yaml and the clouds' schemas; no cloud is asked
clouds: setup tools #- check the definitions in provision/gcp and provision/aws
	provision/clouds/check_definitions

lint: $(STAMP)-dev #- style, types, generated files, words
	ruff check . && ruff format --check .
	snakefmt --check Snakefile workflow/Snakefile workflow/rules
	mypy
	workflow/schemas/generate.py --check
	tests/word_list.py
	tests/measured_time.py
	snakemake --lint --configfile config/demo.yaml

# schemas of the configuration and of records, and the tables of config/README.md, from the types
schemas: setup #- write what is generated from the types
	workflow/schemas/generate.py

docs: .venv-docs/.installed #- the documentation as a site: .site/html/index.html
	python docs/screenshots/make.py --examples .site/examples >/dev/null
	.venv-docs/bin/python docs/build_site.py

# SEED draws the load, and the order of runs in each sweep
aa: setup #- a program against itself in N=10 sweeps under changing load: false verdicts; 2 hours
	@mkdir -p results; study=aa-$(or $(SEED),1); \
	benchmarks/aa/load.py $(or $(SEED),1) >results/$$study-load.txt & load=$$!; trap "kill $$load" EXIT; \
	for sweep in $$(seq $(or $(N),10)); do \
	    $(SNAKEMAKE) --configfile benchmarks/aa/config.yaml \
	        --config study=$$study-$$sweep seed=$$(($(or $(SEED),1) * 1000 + sweep)) || exit; \
	done; \
	kill -0 $$load && benchmarks/aa/verdicts.py $$(seq -f results/$$study-%g $(or $(N),10))

# AGAINST: another checkout of the repository, which does the same in turns
bench: setup #- CPU time of the workflow itself
	python benchmarks/dry_run.py
	python benchmarks/aggregation.py $(if $(AGAINST),--against $(AGAINST))
	python benchmarks/starts.py $(if $(AGAINST),--against $(AGAINST))

all-reduce: $(STAMP)-trainer #- compare MPI with gRPC on this machine: all-reduces by size, steps; a minute
	python benchmarks/all_reduce.py --workers $(or $(WORKERS),2)

# see docs/projection.md for the result
projection: $(STAMP)-trainer #- the time of three trainings from a tenth of their steps, and measured
	@$(SNAKEMAKE) --configfile studies/projection/config.yaml
	@cat results/projection/details/conclusions/projection.md

# one thread: those that wait for a product of small matrices use CPU time
simulate: export OPENBLAS_NUM_THREADS = 1
simulate: setup #- how often a search, answers, limits, dates, two sweeps, slow nodes and special cases are wrong
	python benchmarks/node_effects.py
	python benchmarks/special_cases.py
	python benchmarks/efficiency.py
	python benchmarks/campaign.py
	python benchmarks/left_out.py
	python benchmarks/race.py
	python benchmarks/all_trainings.py
	python benchmarks/regressions.py

# RUNS and SEED: how many, and what happens when
soak: $(STAMP)-dev #- 200 short runs on a virtual cluster while faults happen; half an hour
	provision/virtual/install
	SOAK_RUNS=$(or $(RUNS),200) SOAK_SEED=$(or $(SEED),17) pytest -s -o faulthandler_timeout=0 tests/soak

outage: $(STAMP)-dev #- a sweep while Slurm's controller is away for ten minutes
	provision/virtual/install --accounting
	CONTROLLER_AWAY_S=600 pytest tests/slurm/test_accounting_on_slurm.py -k controller

# SEED and N: which lines, and how many. Tests of the module come first; what they do not notice is
# tested by all that run the line, which is measured once for a commit. NEAR=1 leaves that out
mutants: $(STAMP)-dev #- change N=60 lines of the library, one at a time, and list what no test notices
	tests/mutants.py --seed $(or $(SEED),1) --number $(or $(N),60) $(if $(NEAR),--near) \
	    $(ONLY:%=--only %)

# the same tests with 70 cases each are part of `make test`
fuzz: $(STAMP)-dev #- 6,000 cases of bad input: keys of every type, damaged files
	pytest --hypothesis-profile=many tests/unit/study/test_bad_input.py

# SEED and N: which models, and how many; four minutes of CPU for ten. Some are part of `make test`
fuzz-models: $(STAMP)-dev #- train 200 random models by every strategy, and compare them with Keras's fit
	N=$(or $(N),200) SEED=$(or $(SEED),1) pytest -s -o faulthandler_timeout=0 \
	    tests/unit/test_oracle_random.py -k all_ways

# SEED and N: which studies, and how many; two seconds of CPU for each. Six are part of `make test`
agreement: $(STAMP)-dev #- draw 500 random studies, and compare all views of their answers
	STUDIES=$(or $(N),500) SEED=$(or $(SEED),1) pytest -s -n 0 -o timeout=0 -o faulthandler_timeout=0 \
	    tests/unit/conclusions/test_agreement.py -m "not full"

# the same tests with 64 ranks are part of `make test-full`
scale: $(STAMP)-dev #- many ranks of a program that sleeps: calls to the file system, faults; as root
	RANKS=$(or $(RANKS),1024) pytest -s tests/unit/launch/test_many_ranks.py

# every example, on this machine and on a virtual Slurm cluster
examples: $(STAMP)-dev .venv-tf_keras .venv-jax .venv-torch .venv-trainers .venv-keras_hub .venv-notebook #- run all examples; half an hour
	provision/virtual/install
	pytest tests/examples

# the environments of examples that need other packages, 4 GB in all
.venv-%: examples/requirements-%.txt examples/make-environment | setup
	examples/make-environment $*

# tables and plots of whatever has finished, for the configuration in config/ (or CONFIG=FILE)
partial: setup #- tables and page of what has finished, of CONFIG=FILE
	$(SNAKEMAKE) partial --nolock $(if $(CONFIG),--configfile $(CONFIG))

screenshots: setup #- pictures of four pages in docs/screenshots; needs Chromium
	python docs/screenshots/make.py

cluster-up: setup #- a Slurm cluster on this machine, of NODES=12, half of them with GPUs
	provision/virtual/install
	provision/virtual/cluster up --nodes $(or $(NODES),12)

cluster-down: #- remove it
	provision/virtual/cluster down

# the environment. uv comes first, from the same lock. The stamps are old until all is installed, so
# that an interrupted set-up is repeated. Bytecode is compiled here once and not by every rank of every
# job, except for the packages' own tests; some packages have files for another Python
$(PARTS:%=$(STAMP)-%): $(STAMP)-%: requirements-%.txt
$(STAMP) $(PARTS:%=$(STAMP)-%): $(call locks,$(INSTALLED)) $(PLUGINS) $(OWN)
	@echo "the environment: the packages of $(LOCKS) into .venv"
	@set -e; python=$$(provision/find-python $(if $(filter command,$(origin PYTHON)),$(PYTHON))); \
	$(if $(WHEELHOUSE),$$python provision/closed/wheelhouse.py check '$(WHEELHOUSE)' --locks $(LOCKS) $(OWN:%=--own %);) \
	for stamp in $(wildcard $(STAMP)*); do touch -t 197001020000 $$stamp; done; \
	$(DOTS) \
	$$python -m venv .venv; \
	awk '/^uv==/ {on = 1} on; on && !/\\$$/ {exit}' requirements.txt >.venv/uv.txt; \
	$(CLOSED) pip install --quiet --disable-pip-version-check $(LINKS) --require-hashes --requirement .venv/uv.txt; \
	$(CLOSED) uv pip sync --quiet $(LINKS) --build-constraints requirements.txt --python .venv/bin/python $(LOCKS); \
	$(if $(PLUGINS),$(CLOSED) uv pip install --quiet --offline --no-deps --no-build-isolation --python .venv/bin/python \
	    $(PLUGINS:%/pyproject.toml=--editable %);) \
	$(if $(OWN),$(CLOSED) uv pip install --quiet $(LINKS) --python .venv/bin/python --requirement $(OWN) \
	    $(LOCKS:%=--constraint %);) \
	.venv/bin/python -m compileall -qq -j 0 -x /tests/ .venv/lib || true; \
	touch $(LOCKS:requirements%.txt=$(STAMP)%)

.tools/%/.installed: tests/tools/%.txt | $(STAMP)
	@echo "the packages of $< into .tools/$*"
	@set -e; $(DOTS) \
	uv venv --quiet --clear --python .venv/bin/python .tools/$*; \
	uv pip sync --quiet --require-hashes --python .tools/$*/bin/python $<; \
	touch $@

# the checker of accessibility for browsers: a package of npm, by its checksum
.tools/axe-core/.installed: tests/tools/axe-core.sha256
	rm -rf $(@D) && mkdir -p $(@D)
	cd $(@D) && npm pack --silent $$(sed -E 's/.* (axe-core)-(.*)\.tgz/\1@\2/' $(CURDIR)/$<)
	cd $(@D) && sha256sum --quiet --check $(CURDIR)/$< && tar --extract --gzip --file=$$(ls *.tgz)
	touch $@

# the site's packages are in a separate environment: users do not need them
.venv-docs/.installed: docs/requirements.txt | $(STAMP)
	python -m venv .venv-docs
	uv pip sync --quiet --require-hashes --python .venv-docs/bin/python docs/requirements.txt
	touch $@

# pin everything again: hashes, and no index in the files. The parts of one environment are resolved
# together; each lock begins with these versions and keeps its own packages
TOGETHER = requirements requirements-trainer requirements-parquet requirements-dev
COMPILE = uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
    --custom-compile-command "make lock"
lock: setup #- pin all packages again
	$(COMPILE) --upgrade $(TOGETHER:%=%.in) --output-file .venv/together.txt
	for name in $(TOGETHER); do \
	    cp .venv/together.txt $$name.txt && $(COMPILE) $$name.in --output-file $$name.txt || exit; done
	for name in requirements-cuda docs/requirements $(addprefix tests/tools/,$(TOOLS) $(VERSIONS)) \
	        examples/requirements-{tf_keras,jax,torch,trainers,keras_hub,notebook}; do \
	    $(COMPILE) --upgrade $$name.in --output-file $$name.txt || exit; done
