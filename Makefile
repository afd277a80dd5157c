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
#   make freeze-protocol [AGAIN="<why>"]     freeze the study before its results; a changed one is another protocol
#   make estimate                            time, disk and GPU-hours: measured before, or as the profile states
# Read
#   make status [RUN=<run id>]               where a run is: each stage's state, time, GPUs, progress, and why
#   make watch [RUN=<run id>]                the same, live, until it ends; ends with its exit code
#   make logs STAGE=<stage> [RUN=<run id>]   a stage's output, followed while it runs
#   make report [RUN=<run id>]               render a run's report again from its records
#   make audit [RUN=<run id>]                derive every verdict again from raw records; a difference is an error
#   make mirror [RUN=<run id>]               send to W&B or trackio what they do not hold yet
#   make kv-size MODEL=<model>               bytes per token and page of each recipe; RECIPE= BUDGET=40GiB: what fits
#   make kv-offload, make kv-traffic         GB/s to move a cache in time; its share of a step's bytes (no model runs)
#   make help                                this text and the symbols of the workflow
#   make helpconfig SYM=<symbol>             one symbol: meaning, range, value, where it is used
# Work on kassay
#   make check                               all tests, in an environment of their own
#   make slurm-trial [TRIAL=<profile>]       a study on a throw-away cluster while jobs, a node and the driver are killed
#   make kill-trial [KILLS=<n>]              the kill campaign of the tests, n times as long (10)
#   make bench                               the orchestrator beside ninja, doit and snakemake
#   make bench-cache                         the reference cache beside transformers' own: decode time, memory
#
# KASSAY_PATH=<folder>[:…] adds trees with workflows, stages and defconfigs of your own. VENV=<path> uses another
# framework environment; STACK_PYTHON=<python> an existing torch environment.

VENV ?= .venv
PYTHON ?= python3
# Words of the command line travel in MAKEFLAGS, which make itself quotes: no value is expanded or seen by a shell.
KASSAY = KASSAY_MAKE=1 PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m kassay
CHECK_VENV = build/check
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
VERBS = plan doctor estimate freeze-protocol status watch logs report audit mirror help menuconfig nconfig oldconfig olddefconfig \
	savedefconfig listdefconfigs listnewconfig helpconfig randconfig diffconfig
KV_VERBS = kv-size kv-offload kv-traffic

.PHONY: run $(VERBS) $(KV_VERBS) check slurm-trial kill-trial bench bench-cache setup FORCE
.NOTPARALLEL:

run: setup
	@$(KASSAY) run

$(VERBS): setup
	@$(KASSAY) $@

$(KV_VERBS): kv-%: setup
	@$(KASSAY) kv $*

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

FORCE:
