# Two commands: `make demo` and `make test`. Both set up everything they need.
# ARGS goes to the command: make demo ARGS="--for 60s --report out.json", make test ARGS="-k velocity -x"

# the Python that .venv was made with, otherwise the first that fits
PYTHON ?= $(shell for p in .venv/bin/python python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null \
	&& echo "$$p" && exit; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Python compiles each module once, not in each of the processes of a job
unexport PYTHONDONTWRITEBYTECODE
PACKAGES := deploy feature_store loadtests models service streaming_job

.DEFAULT_GOAL := help
.PHONY: help setup preflight jars kernels demo test test-thorough test-kubernetes test-unit lint \
	release-contracts bench loadtest docs stack-up stack-down images lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 19

preflight:
	@command -v "$(PYTHON)" >/dev/null || { echo "error: no $(PYTHON) found: install Python 3.11 or newer" >&2; exit 1; }
	@"$(PYTHON)" -m deploy.local.preflight

setup: preflight ## make or update the virtual environment (the targets that need it do it first)
	@"$(PYTHON)" -m deploy.local.setup_venv

jars: setup
	@$(BIN)/fraud stack up --fetch-only

demo: setup ## the whole system, live: transactions in, alerts out, verified at the end
	@$(BIN)/fraud demo $(ARGS)

# property tests try other examples each day; to repeat a failure, give SEED the printed seed
SEED ?= $(shell date -u +%Y%m%d)

# three processes, two of them with a stack of their own (tests/harness/scheduling.py); the long files come first
test: setup ## lint, types, and all tests with real servers
	@$(MAKE) --no-print-directory --jobs 3 jars kernels lint
	$(BIN)/python -m pytest --hypothesis-seed=$(SEED) --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# kernels are compiled once for each user and version of their code, in half a minute; without this target,
# several test processes would compile them at the same time
kernels: setup
	@$(BIN)/python -m streaming_job.runtime.workers.preload

# the ledger has the result of each test that ended; with RESUME=1, a run leaves out what passed on these sources.
# With a blank instead of `=`, pytest would take a file that exists for tests, and not know the option
LEDGER := .fraud/thorough.jsonl
test-thorough: ## `make test` with all that takes long (hours); RESUME=1 goes on with an interrupted run
	@FRAUD_HYPOTHESIS=thorough $(MAKE) --no-print-directory test \
		ARGS='--ledger=$(LEDGER) --timeout=3600 $(if $(RESUME),--resume) $(ARGS)'; status=$$?; \
	PYTHONPATH=tests $(BIN)/python -m harness.ledger $(LEDGER) docs/thorough-results.md; exit $$status

# not part of `make test`: it makes a cluster of its own, and needs root, Go, containerd and 20 GB
test-kubernetes: jars kernels ## tests on a real Kubernetes cluster; skipped with a line where something is missing
	@PYTHONPATH=tests $(BIN)/python -m harness.kubernetes $(ARGS)

test-unit: setup ## the tests that need no servers (seconds)
	$(BIN)/python -m pytest -m unit $(ARGS)

lint: setup ## style, types, import directions, dead and repeated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/hadolint deploy/images/Dockerfile
	$(BIN)/vulture
	$(BIN)/python -m deploy.contract_gate
	PYTHONPATH=tests $(BIN)/python -m harness.repeated_code $(PACKAGES)
	$(BIN)/mypy

release-contracts: setup ## VERSION=1.0: keep the contracts as released; `make lint` compares later ones with them
	$(BIN)/python -m deploy.contract_gate "$(VERSION)"

bench: setup ## benchmarks; figures in docs/measurements.md
	@$(BIN)/fraud bench $(ARGS)

loadtest: setup ## open-loop load with locust and an audit of it: make loadtest ARGS="--rate 10000 --for 120s"
	@$(BIN)/fraud loadtest $(ARGS)

docs: setup ## make the pages, dashboards and alert rules that are generated anew
	@$(BIN)/python -m deploy.pages docs
	@$(BIN)/python -m deploy.grafana
	@$(BIN)/python -m deploy.prometheus.absence
	@$(BIN)/python -m deploy.prometheus.operator

stack-up: setup ## start the embedded Kafka, Postgres, Debezium and MLflow
	@$(BIN)/fraud stack up $(ARGS)

stack-down: setup ## stop what stack-up started
	@$(BIN)/fraud stack down $(ARGS)

IMAGES := job sidecar tools
# buildah needs no daemon; STORAGE=vfs where overlay file systems cannot be mounted (slow, and takes 20 GB)
STORAGE ?= overlay
BUILDAH ?= buildah --storage-driver $(STORAGE)
images: setup ## build the images of production (needs buildah); ARGS: build arguments, see deploy/images/Dockerfile
	@mkdir -p .fraud/images
	@for image in $(IMAGES); do \
		$(BIN)/cyclonedx-py requirements --no-validate --output-reproducible --output-format JSON \
			--output-file .fraud/images/$$image.cdx.json deploy/images/$$image.lock || exit 1; done
	@for image in $(IMAGES); do \
		$(BUILDAH) bud --isolation chroot --pull-never --layers --file deploy/images/Dockerfile \
			--ignorefile deploy/images/Dockerfile.dockerignore --build-arg REVISION=$$(git rev-parse HEAD) \
			--target $$image --tag card-fraud-$$image $(ARGS) . || exit 1; done

COMPILE := pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	--no-header --allow-unsafe --strip-extras
lock: setup ## resolve requirements.lock and the images' locks anew from pyproject.toml (minutes)
	@$(BIN)/python -m venv .fraud/lock
	@.fraud/lock/bin/pip install --quiet pip-tools
	.fraud/lock/bin/$(COMPILE) $(foreach extra,job tools s3 local dev,--extra $(extra)) --build-deps-for editable \
		--output-file requirements.lock pyproject.toml
	@# a lock that exists names the versions to prefer: images have those of the tests
	@for image in $(IMAGES); do cp requirements.lock deploy/images/$$image.lock; done
	.fraud/lock/bin/$(COMPILE) --extra s3 --output-file deploy/images/sidecar.lock pyproject.toml
	.fraud/lock/bin/$(COMPILE) --extra s3 --extra job --output-file deploy/images/job.lock pyproject.toml
	.fraud/lock/bin/$(COMPILE) --extra s3 --extra tools --output-file deploy/images/tools.lock pyproject.toml

clean: ## stop the stack; remove the virtual environment, caches and all local data
	@test ! -x $(BIN)/fraud || $(BIN)/fraud stack down $(ARGS)
	rm -rf $(VENV) .fraud .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
