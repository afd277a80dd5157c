# make defconfig-<profile>[+<fragment>…]   choose what to run (make listdefconfigs)
# make [SYMBOL=value …] [SET="a.b=c"]      run it, or what of it is not up to date; ends with a report
# make plan                                the DAG, and why each stage would run
# make menuconfig                          edit the configuration in a terminal
# make report [RUN=<run id>]               render a run's report again from its records
# make check                               all tests, in an environment of their own
# make help                                this text and every symbol
#
# VENV=<path> uses another framework environment; STACK_PYTHON=<python> uses an existing torch environment.

VENV ?= .venv
PYTHON ?= python3
RUN ?= latest
KASSAY = $(VENV)/bin/python -m kassay
CHECK_VENV = build/check
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# Symbols given on the command line travel by name; their values are in the environment, so no shell reads them.
export KASSAY_VARIABLES := $(foreach v,$(.VARIABLES),$(if $(filter command line,$(origin $v)),$v))

.PHONY: run plan menuconfig listdefconfigs report help check setup FORCE
.NOTPARALLEL:

run: setup
	@$(KASSAY) run

plan: setup
	@$(KASSAY) plan

defconfig-%: setup
	@$(KASSAY) defconfig '$*'

menuconfig listdefconfigs help: setup
	@$(KASSAY) $@

report: setup
	@$(KASSAY) report '$(RUN)'

setup: $(VENV)/.ready

# A venv whose interpreter (a link may dangle) or packages are gone is made again, whatever its stamp says.
whole = $(and $(shell test -x '$1/bin/python' && echo yes),$(wildcard $1/lib*/python*/*-packages/kconfiglib.py))

$(VENV)/.ready: pyproject.toml constraints.txt scripts/bootstrap.py $(if $(call whole,$(VENV)),,FORCE)
	@$(PYTHON) scripts/bootstrap.py $(VENV)

$(CHECK_VENV)/.ready: pyproject.toml constraints.txt scripts/bootstrap.py $(if $(call whole,$(CHECK_VENV)),,FORCE)
	@$(PYTHON) scripts/bootstrap.py $(CHECK_VENV) dev

check: $(CHECK_VENV)/.ready
	@$(CHECK_VENV)/bin/python scripts/check.py

FORCE:
