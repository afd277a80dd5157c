# Choose
#   make defconfig-<profile>[+<fragment>…]   write .config; every line must take effect
#   make listdefconfigs                      profiles and fragments: purpose, hardware, time
#   make menuconfig, make nconfig            edit .config in a terminal
#   make savedefconfig NAME=<profile>        save .config as a profile: what differs from the defaults
#   make oldconfig, make olddefconfig        bring an older .config up to date: ask, or take defaults
#   make listnewconfig                       symbols that .config does not mention
#   make diffconfig [A=<x>] [B=<y>]          compare two files or profiles (.config.old with .config)
#   make randconfig SEED=<n>                 a random .config, the same for the same seed
# Run
#   make [SYMBOL=value …] [SET="a.b=c"]      run it, or what of it is not up to date; ends with a report
#   make run STAGE=<stage>[,…]               only these and what they need; FORCE=<stage> again; KEEP=<stage> though stale
#   make plan                                the DAG, and why each stage would run
#   make doctor                              what it needs and this host lacks, stage by stage
#   make nightly PROFILE=<profile>           run it anew from a clean tree, audit it, judge it by its baseline; RUN=: judge only
#   make baseline RUN=<run id> REASON="<why>" accept a run as what nights of its profile are judged by
#   make freeze-protocol [AGAIN="<why>"]     freeze the study before its results; a changed one is another protocol
#   make estimate                            time, disk and GPU-hours: measured before, or as the profile states
# Read
#   make status [RUN=<run id>]               where a run is: each stage's state, time, GPUs, progress, and why
#   make watch [RUN=<run id>]                the same, live, until it ends; ends with its exit code
#   make logs STAGE=<stage> [RUN=<run id>]   a stage's output, followed while it runs
#   make report [RUN=<run id>]               render a run's report again from its records
#   make audit [RUN=<run id>|TAR=<file>]     derive every verdict again from raw records; a difference is an error
#   make runs                                all runs, newest first: state, exit code, outcomes, size, verdict
#   make compare A=<run id> B=<run id>       settings, pins, hosts, gates and metrics of two runs; what may not be compared
#   make query [SQL="SELECT …"] [TO=csv]     records of all runs in SQL (docs/reading.md); without SQL, the views
#   make export [RUN=<run id>] [TO=<file>]   one tar with all that an audit on another machine needs
#   make mirror [RUN=<run id>]               send to W&B or trackio what they do not hold yet
#   make kv-size MODEL=<model>               bytes per token and page of each recipe; RECIPE= BUDGET=40GiB: what fits
#   make kv-offload, make kv-traffic         GB/s to move a cache in time; its share of a step's bytes (no model runs)
#   make help                                this text and the symbols of the workflow
#   make helpconfig SYM=<symbol>             one symbol: meaning, range, value, where it is used
#   make gc [NOW=1]                          what under build/ no run needs: list it, delete it
# Work on kassay
#   make bundle [HOST_PYTHON=3.12]           all that a host without a network needs, in one tar (docs/running.md)
#   make check                               all tests, in an environment of their own
#   make docs                                the documentation as a site, build/docs/html; a dead link is an error
#   make slurm-trial [TRIAL=<profile>]       a study on a throw-away cluster while jobs, a node and the driver are killed
#   make kill-trial [KILLS=<n>]              the kill campaign of the tests, n times as long (10)
#   make bench                               the orchestrator beside ninja, doit and snakemake
#   make bench-cache                         the reference cache beside transformers' own: decode time, memory
#   make bench-attention                     our decode attention beside torch's and FlashInfer's, on a GPU
#
# KASSAY_PATH=<folder>[:…] adds trees with workflows, stages and defconfigs of your own. VENV=<path> uses another
# framework environment; STACK_PYTHON=<python> an existing torch environment.

VENV ?= .venv
PYTHON ?= python3
# Words of the command line travel in MAKEFLAGS, which make itself quotes: no value is expanded or seen by a shell.
KASSAY = KASSAY_MAKE=1 PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m kassay
CHECK_VENV = build/check
DOCS_VENV = build/docs/venv
READ_VENV = build/read
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
VERBS = plan doctor estimate freeze-protocol status watch logs report audit runs compare export gc mirror nightly baseline help menuconfig nconfig oldconfig olddefconfig \
	savedefconfig listdefconfigs listnewconfig helpconfig randconfig diffconfig
KV_VERBS = kv-size kv-offload kv-traffic
READ_VERBS = query

.PHONY: run $(VERBS) $(KV_VERBS) $(READ_VERBS) bundle check docs slurm-trial kill-trial bench bench-cache bench-attention setup FORCE
.NOTPARALLEL:

run: setup
	@$(KASSAY) run

$(VERBS): setup
	@$(KASSAY) $@

$(KV_VERBS): kv-%: setup
	@$(KASSAY) kv $*

$(READ_VERBS): $(READ_VENV)/.ready
	@KASSAY_MAKE=1 PYTHONDONTWRITEBYTECODE= $(READ_VENV)/bin/python -m kassay $@

defconfig-%: export KASSAY_NAME = $*
defconfig-%: setup
	@$(KASSAY) defconfig "$$KASSAY_NAME"

setup: $(VENV)/.ready

# A venv whose interpreter (a link may dangle) or packages are gone is made again, whatever its stamp says.
whole = $(and $(shell test -x '$1/bin/python' && echo yes),$(wildcard $1/lib*/python*/*-packages/kconfiglib.py))

$(VENV)/.ready: pyproject.toml constraints.txt scripts/bootstrap.py $(if $(call whole,$(VENV)),,FORCE)
	@$(PYTHON) scripts/bootstrap.py $(VENV)

$(CHECK_VENV)/.ready: pyproject.toml constraints.txt scripts/bootstrap.py $(if $(call whole,$(CHECK_VENV)),,FORCE)
	@$(PYTHON) scripts/bootstrap.py $(CHECK_VENV) dev

$(READ_VENV)/.ready: pyproject.toml constraints.txt scripts/bootstrap.py $(if $(call whole,$(READ_VENV)),,FORCE)
	@$(PYTHON) scripts/bootstrap.py $(READ_VENV) read

$(DOCS_VENV)/.ready: pyproject.toml constraints.txt scripts/bootstrap.py $(if $(call whole,$(DOCS_VENV)),,FORCE)
	@$(PYTHON) scripts/bootstrap.py $(DOCS_VENV) docs

docs: $(DOCS_VENV)/.ready
	@$(DOCS_VENV)/bin/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs/html
	@echo build/docs/html/index.html

bundle: setup
	@$(VENV)/bin/python scripts/bundle.py

check: $(CHECK_VENV)/.ready
	@$(CHECK_VENV)/bin/python scripts/check.py

slurm-trial: $(CHECK_VENV)/.ready
	@$(CHECK_VENV)/bin/python scripts/slurm-mini/trial.py $(or $(TRIAL),decode-cpu)

kill-trial: $(CHECK_VENV)/.ready
	@KASSAY_KILLS=$(or $(KILLS),10) $(CHECK_VENV)/bin/python -m pytest -q -s tests/crash/test_kill.py

bench: $(CHECK_VENV)/.ready
	@$(CHECK_VENV)/bin/python -m benchmarks.orchestrator

bench-cache: $(CHECK_VENV)/.ready
	@$(CHECK_VENV)/bin/python -m benchmarks.reference_cache --bars

bench-attention: $(CHECK_VENV)/.ready
	@$(CHECK_VENV)/bin/python -m benchmarks.attention

FORCE:
