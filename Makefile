# Each target does its own set-up: Python 3.11 to 3.14 and make are all that must be there before.
# The end-to-end tests also need Go, to build kube-apiserver once per user (about ten minutes); without it they are
# skipped, and with E2E=required they fail.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
IMAGE ?= localhost/kubestow:dev
# A file whose name has the checksum of what is installed in .venv: everything that tests need, or only what `make demo` runs.
INSTALLED := .venv/.installed-$(shell cat requirements/test.txt pyproject.toml | cksum | cut -d' ' -f1)
RUNNABLE := .venv/.runnable-$(shell cat requirements/runtime.txt requirements/build.txt pyproject.toml | cksum | cut -d' ' -f1)

.PHONY: audit site dist release-trial image image-test kind sbom help venv demo test quick quick-first quick-rest unit unit-first unit-rest integration integration-first integration-rest integration-large \
	replay replay-part tools deploy-tests deploy-part e2e e2e-first e2e-rest test-1.36 test-1.38 nightly parity fuzz upstream-e2e check stats format lock

help: ## this list
	@grep -hE '^[a-z0-9.-]+:.*##' Makefile | sed 's/:.*##/\t/'

$(INSTALLED): LOCKS := -r requirements/test.txt
# Without bytecode: the first run compiles what it imports, which is a small part of what is installed.
$(RUNNABLE): LOCKS := --no-compile -r requirements/runtime.txt -r requirements/build.txt
$(INSTALLED) $(RUNNABLE):
	@test -n "$(PYTHON)" || { echo "Kubestow needs Python 3.11 to 3.14; found none. Set PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes $(LOCKS)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm -f .venv/.installed-* .venv/.runnable-* && touch $@

venv: $(INSTALLED) ## the virtual environment in .venv, from the locked requirements

demo: $(or $(wildcard $(INSTALLED)),$(RUNNABLE)) ## the real daemon places the pods of examples/ on an embedded cluster, plain ones, those with volumes, with devices, and groups
	$(BIN)/kubestow simulate examples/demo.yaml
	$(BIN)/kubestow simulate examples/volumes.yaml
	$(BIN)/kubestow simulate examples/devices.yaml
	$(BIN)/kubestow simulate examples/groups.yaml
	@echo "Why pods wait, and what would help: $(BIN)/kubestow simulate examples/volumes.yaml --explain (docs/explain.md)"

# The first half of the unit tests, of the integration tests, and of the tests against a real kube-apiserver. The second half has
# the rest. `make test` runs three parts at a time on two cores, because some parts wait for sockets and processes.
UNIT := tests/unit/plugins tests/unit/cel tests/unit/scenarios
INTEGRATION := $(sort $(wildcard tests/integration/test_[a-l]*.py tests/integration/test_pre*.py))
# These tests make large clusters. In one process with them, each later start of a daemon costs seconds of the collector.
LARGE := tests/integration/test_mixed_histories.py tests/integration/test_unforeseen.py
E2E_FIRST := tests/contract $(sort $(wildcard tests/e2e/test_[v-z]*.py))
PARTS := e2e-rest e2e-first deploy-part integration-rest integration-large integration-first replay-part unit-first unit-rest

# Of the unit tests those that are fast: no laws, none of the allocator, CEL, insight or the testing kit.
QUICK := $(addprefix tests/unit/,plugins cache config core api)
QUICK_REST := $(addprefix tests/unit/,framework kube queueing metrics binding cycle eventhandlers preemption profiles cli)

quick: $(INSTALLED) ## the unit tests that take seconds: run them after each change
	$(MAKE) --no-print-directory -j 2 --output-sync=target quick-first quick-rest

quick-first quick-rest:
	$(BIN)/python -m pytest -q -m "not nightly and not hypothesis" --ignore=tests/unit/plugins/dra \
	$(if $(filter quick-first,$@),$(QUICK),$(QUICK_REST))

test: tools ## all tests but those of `make nightly`
	$(MAKE) --no-print-directory -j 3 --keep-going --output-sync=target $(PARTS)

unit: $(INSTALLED) ## the unit tests
	$(MAKE) --no-print-directory -j 2 --output-sync=target unit-first unit-rest

unit-first:
	$(BIN)/python -m pytest $(UNIT)

unit-rest:
	$(BIN)/python -m pytest tests/unit $(UNIT:%=--ignore=%)

integration: $(INSTALLED) ## whole daemons against the in-process API server
	$(MAKE) --no-print-directory -j 2 --output-sync=target integration-first integration-rest integration-large

integration-first:
	$(BIN)/python -m pytest $(INTEGRATION)

integration-rest:
	$(BIN)/python -m pytest tests/integration $(INTEGRATION:%=--ignore=%) $(LARGE:%=--ignore=%)

integration-large:
	$(BIN)/python -m pytest $(LARGE)

replay: $(INSTALLED) replay-part ## the recorded decisions of kube-scheduler compared with ours

replay-part:
	$(BIN)/python -m pytest tests/parity

tools: $(INSTALLED) ## build or unpack kube-apiserver, etcd, helm, prometheus, Chromium and the like, once per user; root also installs podman
	tests/tools/packages.sh
	$(BIN)/python -m tests.e2e.controlplane.build
	$(BIN)/python -m tests.e2e.karpenter.build
	$(BIN)/python -m tests.e2e.kubelet.build
	$(BIN)/python -m tests.deploy.tools

deploy-tests: $(INSTALLED) ## the tests of the chart, the image, the alerts, and the page in a browser
	tests/tools/packages.sh
	$(BIN)/python -m tests.deploy.tools
	$(MAKE) --no-print-directory deploy-part

deploy-part:
	$(BIN)/python -m pytest tests/deploy tests/page

e2e: tools ## the tests against a real kube-apiserver
	$(MAKE) --no-print-directory -j 2 --output-sync=target e2e-rest e2e-first

e2e-first:
	$(BIN)/python -m pytest $(E2E_FIRST)

e2e-rest:
	$(BIN)/python -m pytest tests/e2e $(E2E_FIRST:%=--ignore=%)

test-1.36: ## the tests against a real kube-apiserver again, of Kubernetes 1.36
	KUBERNETES=1.36 E2E=required $(MAKE) --no-print-directory e2e

test-1.38: ## the same, of Kubernetes 1.38; Go downloads the toolchain that it needs
	KUBERNETES=1.38 E2E=required $(MAKE) --no-print-directory e2e

HISTORIES ?= 300

nightly: $(INSTALLED) ## hours: laws with ten times as many examples, histories drawn anew, mutants, code paths against each other
	KUBESTOW_EXAMPLES=10 KUBESTOW_HISTORIES=$(HISTORIES) $(BIN)/python -m pytest --timeout 7200 -m "hypothesis or nightly" \
	tests/unit tests/integration tests/parity

parity: $(INSTALLED) ## record the real kube-scheduler's verdicts anew and compare ours on the same control plane
	$(BIN)/python -m tests.e2e.controlplane.build
	$(BIN)/python -m tests.parity.record
	$(BIN)/python -m tests.parity.record_extenders
	test "$(KUBERNETES)" = 1.36 || $(BIN)/python -m tests.parity.record_groups

SEEDS ?= 1000-1300

fuzz: $(INSTALLED) ## random scenarios and device claims that were never recorded, ours against kube-scheduler's own code; SEEDS=from-to
	failed=0; for generator in random crowd mixed volumes devices; do \
	$(BIN)/python -m tests.parity.fuzz $$generator $(subst -, ,$(SEEDS)) || failed=1; done; exit $$failed

SCHEDULER ?= kubestow

upstream-e2e: $(INSTALLED) ## Kubernetes' own e2e tests of scheduling and of devices, with Kubestow as default-scheduler; SCHEDULER=kube compares
	$(BIN)/python -m tests.e2e.controlplane.build
	nice $(BIN)/python -m tests.upstream.build
	$(BIN)/python -m tests.upstream --scheduler $(SCHEDULER)

check: $(INSTALLED) ## format, lint, types, architecture, and whether each row of a specification has a test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/check

stats: $(INSTALLED) ## print lines, files, large folders, import circles, modules with one importer, shared class names
	$(BIN)/python -m tests.tools.stats

format: $(INSTALLED) ## let ruff write what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

image: ## the container image, with docker or podman; IMAGE=name:tag for another name than localhost/kubestow:dev
	deploy/image/make.sh $(IMAGE)

image-test: $(INSTALLED) ## build the image with podman and run it: size, labels, commands, daemon; needs podman, runc and mmdebstrap
	E2E=required $(BIN)/python -m pytest -q tests/deploy/test_container.py tests/deploy/test_image.py

kind: image ## a kind cluster with the image, the chart, and pods to look at; never run yet on a container engine: docs/kind.md
	deploy/kind/up.sh $(IMAGE)

site: ## the documentation as a site in site/, with mkdocs
	@test -x .venv-docs/bin/mkdocs || { $(PYTHON) -m venv .venv-docs && \
	.venv-docs/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/docs.txt; }
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. .venv-docs/bin/mkdocs -q build --strict

audit: ## known weaknesses of the locked dependencies; fails where PyPI's data about them cannot be reached
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && \
	.venv-audit/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/audit.txt; }
	@failed=0; for lock in requirements/*.txt; do echo "$$lock:"; \
	.venv-audit/bin/pip-audit --strict --disable-pip --require-hashes -r "$$lock" || failed=1; done; exit $$failed

release-trial: $(INSTALLED) ## the steps of release.yml on loopback: publish all artefacts, and install each from there: docs/releasing.md
	tests/tools/packages.sh
	$(BIN)/python -m tests.deploy.tools
	$(BIN)/python -m tests.e2e.controlplane.build
	E2E=required $(BIN)/python -m pytest -q -s -p no:randomly tests/deploy/test_release.py

dist: $(INSTALLED) ## write wheel, sdist, SBOM (CycloneDX) of the locked dependencies and the archive for krew to dist/
	@test -x .venv-release/bin/cyclonedx-py || { $(PYTHON) -m venv .venv-release && \
	.venv-release/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/release.txt; }
	deploy/release/build.sh dist

sbom: dist ## the same: the SBOM describes the environment in which the wheel is installed

lock: ## write requirements/ anew from pyproject.toml; needs uv
	for lock in "runtime pyproject.toml" "test pyproject.toml --group dev" "build --group build" "audit --group audit" \
	"release --group release" "docs --group docs" "notebook pyproject.toml --group notebook"; do set -- $$lock; \
	uv pip compile $${2} $${3} $${4} --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" --upgrade -q -o requirements/$$1.txt; done
