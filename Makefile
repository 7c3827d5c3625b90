# Every target works in a bare clone: it needs Python 3.11+, make and a package index, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
READY  := $(VENV)/.ready
LOADED := $(VENV)/.tests-loaded

# Modules of tests are compiled once and not by every process that imports them.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test-programs test test-middle test-long walk check format lock generate bench clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install --quiet "$$(grep -oE '^uv==[^ ]+' requirements.lock)"
	@$(UV) pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src tests examples  # processes of tests start a third faster
	@touch $@

# pytest rewrites the asserts of each module once: two processes do it here, or all four would.
$(LOADED): $(READY)
	@for part in "tests/unit tests/conformance" "tests/integration tests/crash tests/pipeline tests/browser"; do \
	  $(BIN)/python -m pytest --collect-only -qq $$part > /dev/null & done; wait
	@touch $@

demo: $(READY) ## the guided tour on embedded defaults; ends by itself
	@printf '%s\n' 'The treasury of examples/, on a bad day'
	@$(BIN)/python -m examples.treasury.tour
	@printf '\n%s\n' 'The trading services of examples/, on Postgres and NATS, with a relay killed in the middle'
	@$(BIN)/python -m examples.trading.tour
	@printf '\n%s\n' 'A subscription: orders come over NATS, which is killed, and headers reroute the urgent ones'
	@$(BIN)/python -m examples.subscriptions.tour
	@printf '\n'
	@$(BIN)/tape demo

test-programs: ## a browser and kcat for tests, where the package manager can install them
	@sh scripts/install_test_programs.sh

# Tests wait for servers for much of their time, so four processes keep two cores busy.
test: $(LOADED) ## the suite, with the short form of crash and load runs; the slowest tests are listed
	$(BIN)/python -m pytest -m "not middle and not long" -n 4 --dist loadfile --no-loadscope-reorder --durations 25

test-middle: $(LOADED) ## what takes too long for `make test`: Spark and Kafka killed, a cluster, a real Collector
	$(BIN)/python -m pytest -m "middle and not long" -n 2 --dist loadfile --no-loadscope-reorder --durations 15

test-long: $(READY) ## the long crash and load runs
	$(BIN)/python -m pytest -m long --timeout 3600

# Narrow it: make walk WALK="--page runs --python 3.12 --extra none"
walk: $(READY) ## follow README and docs to the letter, in clean environments on each Python that is here
	$(BIN)/python -m scripts.walk_docs $(WALK)

check: $(READY) ## the one gate: format, lint, types, import rules, generated files current
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/generate_wire.py --check

format: $(READY) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(READY) ## regenerate the stubs from wire/tape.proto
	$(BIN)/python scripts/generate_wire.py

bench: $(READY) ## every benchmark beside its peer, as a table and JSON lines in build/bench.jsonl
	@rm -f build/bench.jsonl
	@$(BIN)/tape bench all --out build/bench.jsonl; met=$$?; cat build/bench.jsonl; exit $$met

lock: $(READY) ## resolve the dependencies again
	$(UV) pip compile pyproject.toml --quiet --universal --generate-hashes --no-emit-find-links \
	  --extra postgres --extra spark --extra delta --extra nats --extra kafka --extra pubsub --extra otel --extra kms --group dev --custom-compile-command "make lock" -o requirements.lock

clean: ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
