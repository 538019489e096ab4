# The commands of this project; `make help` lists them. Each one sets up what it needs.

VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
CLASSES := $(VENV)/spark-classes.jsa

NAME ?= maintenance
SCALE ?= small
SECONDS ?= 1200
SEED ?= 7
DEMO_SECONDS ?= 60
BENCHMARKS := maintenance peers capture gears snapshots zones riders rite firstquery restart flows wide scaling scaling_real regions loading queue advising gateway
# The test of a cluster runs the driver of scaling_real.
TINY := $(patsubst %,tiny-%,$(filter-out scaling_real,$(BENCHMARKS)))
FRESH := demo test
BASE ?= HEAD~1
ROUNDS ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup demo test again thorough soak lint format bench compare ci fresh clean $(TINY)

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Create .venv with the locked dependencies and this package

demo: $(INSTALLED) ## Watch a shop on a private PostgreSQL being captured, kept up to date and asked
	@$(PYTHON) -m examples.order_entry --seconds $(DEMO_SECONDS)

# The tests' data are tiny: what costs time is compiling, and loading classes. The first level of the compiler alone has room
# for 48 MB of code by default; Spark needs more, and would throw code away and compile it again without end.
test again $(TINY) $(CLASSES): export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC
test again $(TINY): JAVA_TOOL_OPTIONS += -XX:SharedArchiveFile=$(abspath $(CLASSES)) -Xlog:cds*=off
# A third process works while others wait: for servers, for time to pass.
test: $(INSTALLED) $(CLASSES) ## Run all tests
	$(PYTHON) -m pytest -q -n 3 --dist worksteal --durations=25 --tb=short

again: $(INSTALLED) $(CLASSES) ## Run the tests that failed last once more, one by one, with nothing beside them
	$(PYTHON) -m pytest -q --last-failed --last-failed-no-failures none --tb=short

$(CLASSES): $(INSTALLED)
	$(PYTHON) -m tests.class_archive $@

thorough: $(INSTALLED) ## Every test, many more random flows and every point of a crash; takes hours
	HEADGATE_EXAMPLES=100 $(PYTHON) -m pytest -q -n 2 --dist worksteal -m ""

soak: export HEADGATE_SOAK_SECONDS = $(SECONDS)
soak: export HEADGATE_SOAK_SEED = $(SEED)
soak: $(INSTALLED) ## Read and write for twenty minutes, then kill and cut everything for as long: make soak SECONDS=1200 SEED=7
	$(PYTHON) -m pytest -q tests/soak
	$(PYTHON) -m pytest -q -m "" tests/serializability/test_kills.py
	$(PYTHON) -m pytest -q -m "" tests/resumption

lint: $(INSTALLED) ## Check style, types and the layers
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy --strict src
	$(VENV)/bin/lint-imports

format: $(INSTALLED) ## Format the code and sort its imports
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench: $(INSTALLED) ## Run one benchmark: make bench NAME=maintenance SCALE=tiny|small|full
	@case " $(BENCHMARKS) " in *" $(NAME) "*) ;; *) \
		echo "there is no benchmark $(NAME); there are $(BENCHMARKS)" >&2; exit 2 ;; esac
	$(PYTHON) -m benchmarks.$(NAME) --scale $(SCALE)$(if $(PARTS), --parts $(PARTS))$(if $(SIZES), --sizes $(SIZES))

compare: $(INSTALLED) ## Run one benchmark at another commit and here, in turns: make compare NAME=maintenance BASE=HEAD~1 SCALE=tiny
	$(PYTHON) -m benchmarks.compare --name $(NAME) --base $(BASE) --scale $(SCALE) --rounds $(ROUNDS)

# What fails beside others and passes alone depends on the machine's pace: it is named here, to be mended, and lets CI pass.
ci: lint $(INSTALLED) ## All that must pass: lint, test, tiny benchmarks, demo
	@$(MAKE) --no-print-directory test || $(MAKE) --no-print-directory again
	@$(MAKE) --no-print-directory -j 2 --output-sync=target $(TINY) demo DEMO_SECONDS=15

# Two at a time: at this size the figures mean nothing, only that they run.
$(TINY): tiny-%: $(INSTALLED) $(CLASSES)
	$(PYTHON) -m benchmarks.$* --scale tiny

# As on a new machine: what is committed and nothing else, an hour for each command.
fresh: ## Clone into an empty folder with an empty home, and run the README's two commands there
	@set -eu; place=$$(mktemp -d); trap 'rm -rf "$$place"' EXIT; trap 'exit 130' INT TERM; \
	mkdir "$$place/home"; \
	echo "fresh: cloning $$(git rev-parse --short HEAD) into $$place/headgate"; \
	git clone --quiet --no-hardlinks . "$$place/headgate"; \
	for command in $(FRESH); do \
		echo "fresh: make $$command, with the empty home $$place/home"; \
		env -C "$$place/headgate" -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u PYTHONPATH -u VIRTUAL_ENV \
			-u XDG_CACHE_HOME -u XDG_CONFIG_HOME -u XDG_DATA_HOME -u XDG_STATE_HOME HOME="$$place/home" \
			timeout --foreground --kill-after=30 3600 make "$$command" || \
			{ echo "fresh: make $$command failed, or took more than an hour" >&2; exit 1; }; \
	done; \
	echo "fresh: all done, removing $$place"

clean: ## Remove caches and outputs; .venv stays
	rm -rf build dist benchmarks/out demo-warehouse spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements.lock pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "headgate needs Python 3.11 or later; python3 is $$(python3 --version)" >&2; exit 1; }
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@
