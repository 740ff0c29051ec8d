# `make` prints what there is to do. It needs a Python of 3.11 or newer with venv; tests of
# client programs, databases or peers that are not installed are skipped and say so.

VENV := .venv
BIN := $(VENV)/bin
# Their presence says that the environment holds what the lock file of the same name lists.
RUNTIME := $(VENV)/.requirements
DEVELOPMENT := $(VENV)/.requirements-dev

NEW_ENOUGH = import sys; sys.version_info >= (3, 11) and print("$(name)")
PYTHON ?= $(firstword $(foreach name,python3.11 python3 python3.12 python3.13 python3.14,\
	$(shell $(name) -c '$(NEW_ENOUGH)' 2>/dev/null)))
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
LOCK_OF = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command 'make lock'
LOCK = $(LOCK_OF) pyproject.toml

# Test processes beside each other; the tests of one file, and its daemons, stay in one of them.
# They wait for disks and servers half of the time, so three of them suit two cores.
WORKERS ?= 3
IN_PROCESSES = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# More words for the command of a target: make test ARGS='-k uploads -x'
ARGS ?=

# Programs that the tests start by the hundred would otherwise compile all sources each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help dev test test-fast check soak lint format coverage mutants conformance clients dist lines \
	pictures pages bench perf-check lock clean

help: ## Print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-20s%s\n' "$$target" "$$text"; done

dev: $(RUNTIME) ## Run the registry on 127.0.0.1:5000, with its data in ./entrepot-dev-data
	@$(BIN)/entrepot dev $(ARGS)

# COVERAGE=yes also prints what ran of each room. Programs in a namespace, and those that are
# killed, can't say it.
test: $(DEVELOPMENT) ## Run every test that the installed programs allow
	@rm -f .coverage .coverage.*
	$(BIN)/$(if $(COVERAGE),coverage run,python) -m pytest $(IN_PROCESSES) $(ARGS)
ifdef COVERAGE
	@$(BIN)/coverage combine --quiet 2>/dev/null
	@$(BIN)/coverage json -q -o - | $(BIN)/python -m tests.covered_rooms
	@rm .coverage
endif

# The longest models and all of PostgreSQL are left to `make test`; what draws at random draws less.
test-fast: $(DEVELOPMENT) ## Run unit and property tests in three minutes, without PostgreSQL
	SOAK=0.2 $(BIN)/python -m pytest $(IN_PROCESSES) -m 'not postgresql' tests/unit tests/property $(ARGS)

check: lint test ## Run all that a change must pass

# How many times the work of `make test`; a failure is found again with the SEED that is printed first.
SOAK ?= 15
ifndef SEED
SEED := $(shell date +%s)
endif

soak: $(DEVELOPMENT) ## Search for about an hour where tests draw at random; SOAK=30 doubles it
	SOAK=$(SOAK) SOAK_SEED=$(SEED) COLLECTOR_SEED=$(SEED) LEASE_SEED=$(SEED) $(BIN)/python -m pytest \
		-n $(WORKERS) --timeout=7200 --hypothesis-seed=$(SEED) tests/fuzz \
		tests/contract/test_blobstore_model.py tests/fault/test_blobstore_crash.py \
		$(patsubst %,tests/integration/test_%.py,beside collector_races kernel_idempotency_races \
			mass_assignment oauth_races) \
		$(patsubst %,tests/property/test_%.py,collector_interleavings collector_statements \
			control_model dkim jobs_model jobs_schedule_model lifecycle_selection \
			network_reachability network_rules policies proxy_configuration queues_model \
			registry_model repository_folders s3_tampering sealed_tampering search_index \
			tag_prefix_index upload_leases usage_reports work_model) \
		$(patsubst %,tests/unit/test_%.py,s3_signature vpc_map) $(ARGS)

# pip check fails when pyproject.toml names what the lock files do not hold: make lock.
lint: $(DEVELOPMENT) ## Check format, style, types and import contracts
	$(BIN)/python -m pip --disable-pip-version-check check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEVELOPMENT) ## Format the code and mend what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: ## Run tests, and print the share of lines and branches that ran, by room
	$(MAKE) test COVERAGE=yes

# Not in the lock of development, as few need it. Two trees are compared by the same seed.
mutants: $(DEVELOPMENT) ## Put small faults into iam, gc, blobs and signature; ARGS='iam --share 1'
	$(PIP) install --require-hashes --requirement requirements-mutants.txt
	$(BIN)/python -m tests.mutants $(ARGS)

conformance: $(DEVELOPMENT) ## Walk the OCI specification; ARGS='--registry URL' walks it elsewhere
	$(BIN)/python -m pytest tests/conformance $(ARGS)

clients: $(DEVELOPMENT) ## Push and pull with docker, podman, skopeo and the other real clients
	$(BIN)/python -m pytest tests/clients $(ARGS)

dist: $(RUNTIME) ## Build the wheel and the sources to hand out, in ./dist
	$(BIN)/python -m hatchling build --clean

# A room is a package of `registry` or `cloudcore`, or a folder of tests, with all below it.
define ROOMS
$$2 == "total" { next }
{
	depth = split($$2, part, "/")
	deepest = part[1] == "src" ? 3 : 2
	room = part[1]
	for (at = 2; at < depth && at <= deepest; at++) room = room "/" part[at]
	lines[room] += $$1; files[room]++
	lines["all of " part[1]] += $$1; files["all of " part[1]]++
}
END { for (room in lines) printf "%-28s%8d lines%6d files\n", room, lines[room], files[room] }
endef
export ROOMS

lines: ## Print lines and files of Python by room, of sources and tests
	@find src tests -name '*.py' -exec wc -l {} + | awk "$$ROOMS" | sort

pages: $(DEVELOPMENT) ## Write the pages of docs that are generated from the code anew
	for page in actions_page cli_fields commands_page settings_page; do $(BIN)/python -m tests.$$page || exit; done

pictures: $(DEVELOPMENT) ## Take the pictures of the console in docs/console anew
	$(BIN)/python -m tests.clients.console_screenshots docs/console

bench: $(DEVELOPMENT) ## Measure speed, side by side with Debian's docker-registry
	$(BIN)/python -m benchmarks $(ARGS)

# Counts instead of times, so that it says the same on every machine.
perf-check: $(DEVELOPMENT) ## Count the work of each request; fail if it has grown (--write means it)
	$(BIN)/python -m benchmarks.work $(ARGS)

lock: $(DEVELOPMENT) ## Write the lock files anew; ARGS=--upgrade moves to the newest versions
	$(LOCK) --group build --extra s3 --output-file requirements.txt $(ARGS)
	$(LOCK) --group dev --extra s3 --constraint requirements.txt --output-file requirements-dev.txt $(ARGS)
	$(LOCK_OF) --group pyproject.toml:mutants --constraint requirements-dev.txt --output-file requirements-mutants.txt $(ARGS)

clean: ## Remove the environment and all caches; the registry's data stays
	rm -rf $(VENV) dist .coverage* .hypothesis .*_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed, and none was found' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The environment is laid anew only when what it holds has changed.
$(RUNTIME): requirements.txt pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes --requirement requirements.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEVELOPMENT): requirements-dev.txt pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes --requirement requirements-dev.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
