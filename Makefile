# Everything here is also what CI runs.  'make demo' and 'make test' set up what they need.

VENV ?= .venv
PYTHON ?= python3
run := $(VENV)/bin/python
checked := daemon adapters migration tests

.PHONY: help setup packages bed bed-env bed-down lint check test demo bench vm-test
.DEFAULT_GOAL := help

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: packages $(VENV)/installed ## Install all that is needed: packages, CRIU, images, Python libraries
	@$(run) -m tests.testbed prepare

packages:
	@tests/testbed/setup.sh

$(VENV)/installed: pyproject.toml
	@tests/testbed/venv.sh $(PYTHON) $(VENV)
	@touch $@

bed: setup ## Start a private Slurm, Docker engines and stopgap for work by hand
	@$(run) -m tests.testbed up

bed-env: ## Print the variables to use the bed: eval "$(make -s bed-env)"
	@$(run) -m tests.testbed env

bed-down: ## End the bed, also after a crash
	@$(run) -m tests.testbed down

lint: $(VENV)/installed ## Check style, types and layers
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/mypy $(checked)
	@$(VENV)/bin/lint-imports --no-cache

check: lint ## Check everything that needs neither root nor real parts
	@STOPGAP_QUICK=1 PYTEST_DEBUG_TEMPROOT=$(wildcard /dev/shm) $(run) -m pytest -q -n auto -m "not bed and not loop and not slow"

test: setup ## Check everything, on real parts
	@$(run) -m pytest -q -n 2 --dist loadfile
	@$(MAKE) --no-print-directory lint

demo: setup ## Show jobs that move out of the way of priority jobs, and prove that nothing is lost
	@$(run) -m tests.demo

bench: setup ## Measure checkpoints and resumes beside runc and Docker
	@$(run) -m tests.benchmarks

vm-test: packages $(VENV)/installed ## Check what needs systemd, cgroup v2, other users and a reboot, in a virtual machine
	@$(run) -m tests.vm test
