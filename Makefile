PY := .venv/bin/python
# Tests whose calls have seconds to reach a namespace, many at a time. They run after the others.
DEADLINES := tests/faults/test_pairing_frozen.py tests/faults/test_call_times.py
# Tests whose namespaces can be of any tier, and cells of the fault matrix.
TIER_TESTS := $(wildcard tests/integration/test_pairing*.py tests/integration/test_syphon*.py)
TIER_CELLS := primary/kill/filling worker/kill/draining

# Tests that need no other program than Python, neither Java nor Node.js, a browser or Prometheus,
# and no packages of the documentation.
CORE_TESTS := tests/unit tests/property tests/integration
NOT_CORE := test_alerts.py test_celery_docs.py test_fastapi_docs.py test_least_rights.py test_network_options.py test_pairing_websockets.py test_prometheus.py test_proxies.py test_proxies_sdk.py
NEEDS_JAVA := tests/integration/cli/test_configuration.py::test_drill_uses_a_pairing_only_if_it_is_named

# Hundreds of processes import the same files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-core test-tiers soak simulate lint format wheel sbom images tutorial release-check bench instructions performance docs rules fuzz sdk-suite clean setup-core setup-demo setup-test

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup-demo ## Run the outage drill on this machine, with a web page; ARGS="--outage 30" sets options
	@$(PY) -m pairbus drill --console $(ARGS)

test: setup-test ## Run all tests; ARGS="tests/unit -k flow" selects some
ifdef ARGS
	@$(PY) -m pytest $(ARGS)
else
	@$(PY) -m pytest -m "not soak" -n 6 --dist loadfile --no-loadscope-reorder --durations 25 $(addprefix --ignore ,$(DEADLINES))
	@$(PY) -m pytest -n 9 --dist worksteal $(DEADLINES)
endif

test-core: setup-core ## Run the tests that need no other program than Python, such as Java
	@$(PY) -m pytest -m "not soak" -n 4 --dist loadfile $(CORE_TESTS) $(NOT_CORE:%=--ignore-glob '*/%') --deselect $(NEEDS_JAVA) $(ARGS)

test-tiers: setup-test ## Run tests of pairing and syphon, and some faults, on namespaces of each Azure tier
	@for tier in standard premium; do \
		PAIRBUS_TEST_TIER=$$tier $(PY) -m pytest -m "not soak and not unlimited" -n 2 --dist loadfile $(TIER_TESTS) && \
		PAIRBUS_TEST_TIER=$$tier $(PY) -m tests.faults.matrix --run 1 $(addprefix --cell ,$(TIER_CELLS)) || exit 1; \
	done

soak: setup-test ## Run the long tests, the model of failback, more examples of the property tests, and the fault matrix (MINUTES=30, SEED=7)
	@$(PY) -m pytest -m soak --durations 15
	@HYPOTHESIS_PROFILE=wide $(PY) -m pytest tests/property
	@$(PY) -m scripts.wheel --drill
	@$(PY) -m tests.faults.matrix --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

lint: setup-test ## Check style and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pyright --project .

format: setup-test ## Format the code
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

wheel: setup-demo ## Build sdist and wheel into dist/, and test the wheel in empty environments (ARGS=--drill: with Spark)
	@$(PY) -m scripts.wheel $(ARGS)

sbom: setup-demo ## Write the software bill of materials of the wheel to dist/
	@$(PY) -m scripts.sbom

images: setup-test ## Build and run the images of deploy/, and build its manifests (as root, after make wheel)
	@$(PY) -m scripts.images

tutorial: setup-test ## Follow the tutorial in an empty Debian (as root, after make wheel; ARGS=trixie)
	@$(PY) -m scripts.tutorial $(ARGS)

release-check: setup-demo ## Check that TAG=v0.2.0 is the version of the package, with a date in CHANGELOG.md
	@$(PY) -m scripts.release_check "$(TAG)"

bench: setup-test ## Run all benchmarks; ARGS=emulator selects one
	@$(PY) -m benchmarks $(ARGS); status=$$?; $(PY) -m scripts.performance; exit $$status

instructions: setup-test ## Check the instructions of hot paths; ARGS="--keep" keeps the new figures
	@$(PY) -m benchmarks.hot_paths.guard $(ARGS)

performance: setup-test ## Generate docs/reference/performance.md from the last benchmark results
	@$(PY) -m scripts.performance

docs: setup-test ## Generate pages from code and results, build the site of the documentation into build/site, and check its links
	@$(PY) scripts/cli_docs.py
	@$(PY) scripts/telemetry_docs.py
	@$(PY) -m scripts.performance
	@$(PY) -m scripts.site

rules: setup-test ## List every rule with its tests, and write build/rules-tests.md
	@$(PY) scripts/rules.py

fuzz: setup-test ## Fuzz the AMQP engine (SECONDS=60)
	@$(PY) -m tests.fuzz --seconds $(or $(SECONDS),60)

simulate: setup-test ## Simulate outages (SEEDS=10000), or replay one (SEED=7; ARGS=--shrink shrinks it)
	@$(PY) -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000)) $(ARGS)

sdk-suite: setup-test ## Run the SDK's own tests; ARGS="--transport tls -k session" selects
	@$(PY) -m tests.sdk_suite $(ARGS)

clean: ## Remove all generated files
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache tests/peers/node_modules
	find src tests benchmarks scripts examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

setup-core:
	@scripts/setup core

setup-demo:
	@scripts/setup demo

setup-test:
	@scripts/setup test
