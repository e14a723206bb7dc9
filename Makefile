# Two commands for a newcomer: `make demo` runs it, `make test` tests it. Each does the set-up that it needs.
# Needed beforehand: Python 3.11 or newer with venv, make and git.

PYTHON ?= python3
VENV := .venv
SUPPLY := $(VENV)/supply
PEERS := $(VENV)/peers
LAB := $(VENV)/lab
RUN := $(VENV)/bin/python
DUCTILE = $(or $(DUCTILE_BIN),$(shell command -v ductile))
# Much of what the tests take is waiting for processes and deadlines: three of them to two processors.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((3 * len(os.sched_getaffinity(0)) + 1) // 2)" 2>/dev/null || echo 3)
# A world has a processor for itself: its copies run one after another.
WORLDS ?= $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)))" 2>/dev/null || echo 2)
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
READY := $(VENV)/ready
# A seed of the simulator is one schedule, the order of sets included.
export PYTHONHASHSEED := 0
# Tests start hundreds of processes: with no bytecode kept, each would compile the program for a second.
unexport PYTHONDONTWRITEBYTECODE
# Nothing is built from source, which would run it: only what has no wheel, from a source that its hash names.
# Nor is it compiled before it is used: of the 5,000 modules of two model libraries most never are.
LOCKED := -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all:
A_DUCTILE = test -x "$(DUCTILE)" || { echo "No Ductile found: build or bring one as github.com/mattjoyce/ductile says," \
  "then put it on PATH as ductile or name it in DUCTILE_BIN." >&2; exit 1; }

.PHONY: demo chaos-cluster test test-all nightly attack fuzz test-browser test-ductile test-sim test-kubernetes test-systemd check size calls bench bench-cluster bench-prompts bench-peers eval lab build install-test sbom audit setup clean

demo: $(READY)
	@$(RUN) -m agent_service demo

# All that can befall three agents and two gateways on a NATS cluster of three, under load: 20 minutes. Prints JSON.
# A smaller one: make chaos-cluster STORM="--runs 100 --times 1 --faults 'agent killed' 'leader killed'"
chaos-cluster: $(READY)
	@$(RUN) -m tests.e2e.storm $(STORM)

# What a push waits for: every test that starts no process of ours, and of those that do one choice per ability (tests/lanes.py).
test: $(READY)
	$(RUN) -m pytest --push $(SPREAD) --ignore=tests/sim
	$(RUN) -m pytest --push -q -n $(WORLDS) --dist worksteal tests/sim

# Every test but those of the lanes below: half an hour on two processors. Those of ALONE hold on a machine that does nothing else.
ALONE := tests/e2e/test_timing.py
MACHINES := tests/deploy/test_systemd.py tests/deploy/test_machine.py tests/deploy/test_operators_story.py
test-all: $(READY)
	$(RUN) -m pytest $(SPREAD) -m "not attack" $(ALONE:%=--ignore=%) $(MACHINES:%=--ignore=%) \
	  --ignore=tests/browser --ignore=tests/deploy/test_kubernetes.py --ignore=tests/sim
	$(RUN) -m pytest $(ALONE)

# Everything that there is, as CI does it each night, in about an hour: each test once, and the installed wheel.
# What fails stops nothing of the rest. On a machine without a Ductile or Chromium their tests are skipped, and say so.
nightly: $(READY)
	$(MAKE) --keep-going check test-all test-sim lab attack test-browser test-kubernetes test-systemd install-test

# A hundred times as many worlds as a push draws. Others: make test-sim SEEDS=1000 FROM=7000
SEEDS ?= 2000
FROM ?= 1
test-sim: $(READY)
	SIM_SEEDS=$(SEEDS) SIM_FROM=$(FROM) $(RUN) -m pytest -q -n $(WORLDS) --dist worksteal --timeout=900 tests/sim

# Every attack, with what came of it: on the program, and on an unprotected twin where there is one.
ATTACKED = $(shell { grep -rl --include='test_*.py' 'mark\.attack' tests; \
  grep -oE '`[a-z0-9_/]+/test_[a-z0-9_]+\.py' docs/SECURITY.md | sed 's|^`|tests/|'; } | sort -u)
attack: $(READY)
	$(RUN) -m pytest -q -p tests.attacks.report -m attack $(SPREAD) $(ATTACKED)

# libFuzzer over every parser that meets strangers. CPython 3.11 to 3.13 on Linux x86-64; elsewhere `make test` has to do.
SECONDS ?= 600
fuzz: $(READY)
	$(RUN) $(LOCKED) -r requirements-fuzz.lock
	$(RUN) -m tests.fuzz $(SECONDS)

# The tests of the page, in a real Chromium: Debian's is installed where this user may.
test-browser: $(READY)
	$(RUN) $(LOCKED) -r requirements-browser.lock
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
	  || echo "No Chromium, and none could be installed: the tests of the page are skipped." >&2
	$(RUN) -m pytest tests/browser -n 2 --dist loadfile

# What deploy/kubernetes tells Kubernetes, against its schemas. Rendered by kubectl; what needs it is skipped where there is none.
test-kubernetes: $(READY)
	$(RUN) $(LOCKED) -r requirements-kubernetes.lock
	$(RUN) -m pytest tests/deploy/test_kubernetes.py

# docs/OPERATIONS.md, typed on a machine that boots systemd: a container that is made once, as root on Linux. Two minutes more.
MACHINE ?= /var/tmp/agentic-machine
test-systemd: $(READY)
	@sh tests/deploy/machine/make.sh $(MACHINE) || echo "No machine could be made: what needs one is skipped." >&2
	BOOTS_FROM=$(MACHINE) $(RUN) -m pytest $(MACHINES)

# The tests that a real Ductile takes part in. Elsewhere they are skipped, and a fake stands in for it.
test-ductile: $(READY)
	@$(A_DUCTILE)
	DUCTILE_BIN="$(DUCTILE)" $(RUN) -m pytest -m ductile -n 2 --dist loadfile tests/ductile tests/plugins

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(RUN) -m schemas.generate --check
	$(RUN) -m tests.states --check

# How large the program is, room by room; and how many files and Python calls a step passes.
size: $(READY)
	@$(RUN) -m tests.bench.size

calls: $(READY)
	@$(RUN) -m tests.bench.calls

# Shorter: make bench BENCH="--concurrency 32 --seconds 5"; `--help` says what else it measures.
bench: $(READY)
	@$(RUN) -m tests.bench.bench $(BENCH)

# Agents on one NATS server and on a cluster of three: how much they carry, and what a step costs. A quarter of an hour.
bench-cluster: $(READY)
	@$(RUN) -m tests.e2e.cluster_figures $(FLEETS)

# Against the model of ./agentic.yaml; without one against the scripts of the scenarios, which cost nothing: `make test`
# has played these already.
eval: $(READY)
	@$(RUN) -m agent_service eval

# AgentDojo and tau2-bench, some of the tasks that their packages ship, played by scripts: lab/README.md. Two minutes.
lab: $(LAB)/ready
	PYTHONPATH=$(LAB) $(RUN) -m pytest tests/lab

bench-prompts: $(READY)
	@$(RUN) -m tests.models.prompt_costs

# The same job on LangGraph, DBOS and Restate, in turns: six minutes. What they need is put apart (Restate's server by npm).
# A shorter one: make bench-peers AGAINST="--rounds 1 --only agentic dbos"
bench-peers: $(PEERS)/ready
	@$(RUN) -m tests.peers.compare $(AGAINST)

# A source distribution, a wheel, and what they are made of.
build: sbom
	$(RUN) -m hatchling build

# The wheel as a newcomer has it: in a clean environment and an empty folder, far from the checkout.
install-test: build
	$(RUN) -m tests.packaging.as_installed

# What is installed and what needs what, with licences, as CycloneDX.
sbom: $(READY) $(SUPPLY)/ready
	mkdir -p dist
	$(SUPPLY)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
	  --output-format JSON --output-file dist/agentic-loop-nats.cdx.json $(RUN)

# Known vulnerabilities of everything that is locked. It asks PyPI, and fails where that cannot be reached.
AUDITED ?= requirements.lock
audit: $(SUPPLY)/ready
	$(SUPPLY)/bin/pip-audit --strict --disable-pip --require-hashes --requirement $(AUDITED)

setup: $(READY)

# The lock names every version and hash. The project itself is installed in place, built by the locked hatchling.
$(READY): requirements.lock pyproject.toml
	@echo "Installing the locked packages into $(VENV), once: a minute or two."
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(RUN) $(LOCKED) --no-binary nkeys -r requirements.lock
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

# The tools for that are no part of the program, and have a place of their own.
$(SUPPLY)/ready: requirements-supply.lock | $(READY)
	test -x $(SUPPLY)/bin/python || $(RUN) -m venv $(SUPPLY)
	$(SUPPLY)/bin/python $(LOCKED) -r requirements-supply.lock
	touch $(SUPPLY)/ready

# Nor are those that are compared with it.
$(PEERS)/ready: requirements-peers.lock tests/peers/package-lock.json | $(READY)
	test -x $(PEERS)/bin/python || $(RUN) -m venv $(PEERS)
	$(PEERS)/bin/python $(LOCKED) -r requirements-peers.lock
	cp tests/peers/package.json tests/peers/package-lock.json $(PEERS)
	@if command -v npm >/dev/null; then npm ci --silent --ignore-scripts --prefix $(PEERS); \
	  else echo "No npm: the comparison leaves Restate out." >&2; fi
	touch $(PEERS)/ready

# Of the benchmarks what their worlds need: their own agents would bring the libraries of four providers.
$(LAB)/ready: requirements-lab.lock | $(READY)
	$(RUN) $(LOCKED) --no-deps --upgrade --target $(LAB) -r requirements-lab.lock
	touch $(LAB)/ready

clean:
	rm -rf $(VENV) dist .agentic .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
