PY := .venv/bin/python
# Calls that have a few seconds: nothing runs beside them.
HASTY := tests/faults/test_pairing_frozen.py

.DEFAULT_GOAL := help
.PHONY: help demo test soak lint format wheel bench performance docs rules fuzz clean setup-demo setup-test

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup-demo ## An outage on purpose, on this machine, and proof that nothing was lost
	@$(PY) -m pairbus drill $(ARGS)

test: setup-test ## Run all tests; ARGS="tests/amqp -k flow" picks some
ifdef ARGS
	@$(PY) -m pytest $(ARGS)
else
	@$(PY) -m pytest -m "not soak" -n 3 --dist loadfile --no-loadscope-reorder --ignore tests/faults --durations 25
	@$(PY) -m pytest -m "not soak" -n 2 --dist loadfile --durations 15 tests/faults --ignore $(HASTY)
	@$(PY) -m pytest -n 3 $(HASTY)
endif

soak: setup-test ## Run the long tests, then the fault matrix for MINUTES=30; SEED=7 repeats one
	@$(PY) -m pytest -m soak --durations 15
	@$(PY) -m tests.faults.matrix --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

lint: setup-test ## Check style and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: setup-test ## Put the code into the house format
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

wheel: setup-demo ## Build the wheel, and run the README's example with it in an empty environment
	@$(PY) scripts/wheel.py

bench: setup-test ## Measure everything beside its peers; ARGS=emulator picks one
	@$(PY) -m benchmarks $(ARGS); status=$$?; $(PY) -m scripts.performance; exit $$status

performance: setup-test ## Write docs/performance.md from the figures that make bench took
	@$(PY) -m scripts.performance

docs: setup-test ## Write docs/cli.md from the commands
	@$(PY) scripts/cli_docs.py

rules: setup-test ## List every rule with the tests that prove it, also in build/rules-tests.md
	@$(PY) scripts/rules.py

fuzz: setup-test ## Throw bad input at the engine; SECONDS=600 for longer than a minute
	@$(PY) -m tests.fuzz --seconds $(or $(SECONDS),60)

clean: ## Remove everything that make made
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache tests/peers/node_modules
	find src tests benchmarks scripts examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

setup-demo:
	@scripts/setup demo

setup-test:
	@scripts/setup test
