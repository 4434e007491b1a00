# Every target makes what it needs itself; the only things needed before are Python >= 3.11, git and make.
PYTHON ?= python3
SCALE ?= 0.1
BASE ?= HEAD~1
MUTANTS ?= 40
BIN := .venv/bin
# Tests start hundreds of nodes: without byte code each would compile every module anew.
export PYTHONDONTWRITEBYTECODE :=
# Where tests of whole processes lie: to collect all others takes a minute.
WHOLE := tests/cluster tests/spark tests/state/cloud
.DEFAULT_GOAL := help
.PHONY: whole whole-all soak soak-changes scenarios help demo test coverage long kills lint types bench docs proto lock clean sim mutants sim-mutants source-mutants fuzz fuzz-sql fuzz-changes fuzz-guard fuzz-calls fuzz-ports fuzz-wire fuzz-documents

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.venv/.ready-%: pyproject.toml constraints.txt scripts/bootstrap.py
	@$(PYTHON) scripts/bootstrap.py $*
	@touch $@

demo: .venv/.ready-demo ## answer TPC-H queries on a real local cluster, kill nodes, answer again (SCALE=0.1)
	@$(BIN)/ballista-py demo --scale $(SCALE)

test: .venv/.ready-dev ## run the fast tests
	@$(BIN)/python -m pytest -n 3 --dist loadfile -m "not long and not whole"

whole: .venv/.ready-dev ## run the tests that start clusters of whole processes, or Spark: a fourth of them, others for every state of src
	@$(BIN)/python -m pytest -n 3 --dist loadfile $(WHOLE) -m "whole and not long"

whole-all: .venv/.ready-dev ## the same, with those that make whole runs in turns: before a change is handed in
	@BALLISTA_ALL_SHARES=1 $(BIN)/python -m pytest -n 3 --dist loadfile $(WHOLE) -m "whole and not long"

coverage: .venv/.ready-dev ## run the tests of both and tell which lines none of them ran
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term:skip-covered

long: .venv/.ready-dev ## run the tests that take minutes, and those of which the others run a share
	@BALLISTA_ALL_SHARES=1 $(BIN)/python -m pytest -m "long or share or turn"

sim: .venv/.ready-dev ## simulate 10,000 virtual hours full of faults; goes on where it was stopped
	@$(BIN)/ballista-py sim run --seeds 10000 --hours 1 --done .venv/sim-done.txt

mutants: sim-mutants source-mutants ## let simulation and tests catch deliberate faults: both of the next two

sim-mutants: .venv/.ready-dev ## let the simulation catch every deliberate fault; writes the table of docs/guarantees.md
	@$(BIN)/ballista-py sim mutants --write docs/guarantees.md

source-mutants: .venv/.ready-dev ## plant faults in the code that differs from BASE; which do no tests notice? (MUTANTS=40)
	@$(BIN)/python scripts/source_mutants.py --base $(BASE) --sample $(MUTANTS)

soak: .venv/.ready-dev ## write, change and read for ten minutes while nodes are killed; reports in docs/guarantees.md
	@$(BIN)/python scripts/soak.py --minutes 10 --write docs/guarantees.md

soak-changes: .venv/.ready-dev ## a table follows PostgreSQL for ten minutes while nodes and the database are killed
	@$(BIN)/python -m pytest -q -s -m long tests/cluster/test_changes_under_kills.py

scenarios: .venv/.ready-dev ## restarts, kills, sizes, lost documents with real processes; reports in docs/guarantees.md (NAME=…)
	@$(BIN)/python scripts/scenarios $(NAME) --write docs/guarantees.md

fuzz: fuzz-wire fuzz-ports fuzz-documents fuzz-guard fuzz-calls fuzz-sql fuzz-changes ## all of the fuzzers, for hours

fuzz-sql: .venv/.ready-dev ## compare 100,000 random queries over partitions with a single node
	@$(BIN)/python -m ballista_py.testing.sql.fuzz --queries 100000

fuzz-changes: .venv/.ready-dev ## compare 20,000 random changes of partitioned tables with a single node
	@$(BIN)/python -m ballista_py.testing.sql.change_fuzz --statements 20000
	@$(BIN)/python -m pytest -q -m long tests/cluster/test_random_definitions.py tests/sql/test_change_truths.py

fuzz-guard: .venv/.ready-dev ## try to get out of the guard of SQL by 100,000 generated statements
	@$(BIN)/python -m ballista_py.testing.sql.guard_fuzz --statements 100000

fuzz-calls: .venv/.ready-dev ## call what clients may call with 200,000 lists of odd arguments: nothing ends the engine
	@$(BIN)/python -m ballista_py.testing.sql.odd_calls --calls 200000

fuzz-wire: .venv/.ready-dev ## send mutated Arrow messages to every door for an hour
	@$(BIN)/python -m ballista_py.testing.hostile.wire_fuzz --seconds 3600

fuzz-ports: .venv/.ready-dev ## send spoilt requests of every kind to every port, and spoilt files, for an hour
	@$(BIN)/python -m ballista_py.testing.hostile.port_fuzz --seconds 3600

fuzz-documents: .venv/.ready-dev ## spoil the documents that a cluster keeps, under those who read them, for an hour
	@$(BIN)/python -m ballista_py.testing.hostile.document_fuzz --seconds 3600

kills: .venv/.ready-dev ## kill a holder of partitions two thousand times and compare what it finds again with the manifests
	@$(BIN)/python -m pytest -q -n 2 -m long tests/storage/test_kept_rows_killed.py

lint: .venv/.ready-dev ## check style and the floors of the house
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src

types: .venv/.ready-dev ## check the types of src
	@$(BIN)/mypy

bench: .venv/.ready-dev .venv/.ready-bench ## run the benchmarks behind docs/performance.md
	@set -e; for bench in benches/[a-z]*.py; do echo "== $$bench"; $(BIN)/python $$bench; done

docs: .venv/.ready-docs ## build the documentation into docs/_build
	@$(BIN)/sphinx-build -q -W -b html docs docs/_build

proto: .venv/.ready-proto ## regenerate the protobuf modules after a change of a .proto
	@cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. --pyi_out=. \
		ballista_py/transport/proto/control.proto
	@cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
		ballista_py/transport/proto/table_read.proto ballista_py/transport/proto/table_write.proto

lock: .venv/.ready-dev ## write the versions that .venv has into constraints.txt, which every target installs
	@{ head -1 constraints.txt; $(BIN)/python -m pip list --format=freeze | grep -v -E '^(ballista_py|pip|setuptools)=='; } > .venv/lock && mv .venv/lock constraints.txt

clean: ## remove .venv and everything that was built
	@rm -rf .venv build dist docs/_build .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
