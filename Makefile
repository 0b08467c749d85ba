# The two commands: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
RELEASE := $(CARGO_TARGET_DIR)/release
IMAGES := $(CARGO_TARGET_DIR)/images
DIST := $(CARGO_TARGET_DIR)/dist
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# Local images have the names of the release, as the manifests do. Nodes do not pull an image that is loaded.
REGISTRY := ghcr.io/opendilab

.DEFAULT_GOAL := help
FUZZ_SECONDS ?= 180
PREFIX ?= /usr/local
CACHE_DIR := $(or $(DI_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/di-orchestrator)
CARGO_FUZZ := $(CACHE_DIR)/cargo-fuzz
MATURIN_VERSION := 1.16.0
MATURIN := $(CACHE_DIR)/python/maturin-$(MATURIN_VERSION)
CYCLONEDX_VERSION := 0.5.9
CYCLONEDX := $(CACHE_DIR)/cargo-cyclonedx-$(CYCLONEDX_VERSION)

.PHONY: help demo test lint unit test-faults test-newest-k8s selftest compiled e2e bench bench-quick bench-programs fuzz generate binaries images cluster deploy down plugin wheel dist install uninstall

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 18

demo: ## Create a cluster, install the orchestrator and train a DIJob
	@kind/demo

# The suites run one after the other: in parallel, API servers did not respond for many seconds.
test: ## Run all checks and tests that must pass
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target compiled images selftest
	@$(MAKE) --no-print-directory --jobs=1 unit e2e

compiled:
	@$(MAKE) --no-print-directory --jobs=1 lint
	cargo test --workspace --locked --no-run
	cargo test --workspace --locked --no-run --features di-e2e/cluster --test e2e

lint: ## Check formatting, clippy, shell scripts, rendered manifests and the Helm chart
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	@kind/lint
	@kind/language/check
	@kind/structure
	@manifests/render default | diff - manifests/install.yaml >/dev/null || { echo "manifests/install.yaml is out of date: run make generate"; exit 1; }
	@manifests/render webhook-only | diff - manifests/install-webhook-only.yaml >/dev/null || { echo "manifests/install-webhook-only.yaml is out of date: run make generate"; exit 1; }
	@charts/generate --check
	@charts/check

# More threads than cores, since the tests mostly wait.
unit: export RUST_TEST_THREADS ?= 3
unit: ## Run unit tests, and tests against a real etcd and kube-apiserver
	KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked
	DI_FAULTS=25 DI_SEED=1 KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked --tests --quiet -- $(SOME_FUNCTIONAL)
	cd python && PYTHONPATH=src python3 -W error -m unittest discover -s tests

# `--tests` builds all targets: a single one would have other features, and so other dependencies to compile.
SOME_FUNCTIONAL := lifecycle::failed_collector endpoint::add_remove::add_and_remove
# Failed tests print their seed. The OpenAPI test is skipped, since it expects responses without faults, and so are the tests
# with faults of their own, which `make unit` runs.
test-faults: ## Run the API server tests while a quarter of all requests fails (DI_SEED=N repeats a run)
	DI_FAULTS=$${DI_FAULTS:-25} KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked --test suite -- --skip endpoint::openapi:: --skip faults::

test-newest-k8s: ## Test the CRDs with CEL rules on the newest Kubernetes
	CRD_SERVER=$$(kind/crd-server) KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked --test newest_k8s

selftest: ## Test the scripts in kind/ on a temporary cluster
	@kind/selftest

e2e: deploy ## Run the end-to-end tests on the cluster; starts it if necessary
	@tests/e2e/run

fuzz: $(CARGO_FUZZ)/bin/cargo-fuzz ## Fuzz the webhooks, the validator and what the plugin reads for FUZZ_SECONDS each (FUZZ_TARGETS selects)
	@fuzz/run $< $(FUZZ_SECONDS)

$(CARGO_FUZZ)/bin/cargo-fuzz:
	cargo install cargo-fuzz --locked --root $(CARGO_FUZZ)

# Benchmarks that need a cluster run last, since it would disturb the others.
bench: bench-programs ## Run all benchmarks and write docs/benchmarks.md (about an hour; the cluster stays up; BENCH="--only b1,b5" selects)
	KUBEBUILDER_ASSETS=$$(kind/assets) $(RELEASE)/di-bench run \
	  --cluster 'make --no-print-directory deploy >&2 && eval "$$(kind/env)" && echo "$$KUBECONFIG"' $(BENCH)

bench-quick: bench-programs ## Check that the benchmarks work, without those that need nodes; writes to target/bench
	@mkdir -p $(CARGO_TARGET_DIR)/bench
	KUBEBUILDER_ASSETS=$$(kind/assets) $(RELEASE)/di-bench run --quick --output $(CARGO_TARGET_DIR)/bench $(BENCH)

bench-programs:
	cargo build --release --locked -p di-orchestrator -p di-bench -p kubectl-di

generate: ## Write the CRDs, their golden copies, the rendered manifests, and the Helm chart
	cargo run -q -p di-orchestrator -- crds --output manifests/crds
	manifests/render default >manifests/install.yaml
	manifests/render webhook-only >manifests/install-webhook-only.yaml
	charts/generate
	INSTA_UPDATE=always cargo test -q --workspace --test crds

binaries: ## Build the programs of the images, and the plugin
	cargo build --release --locked -p di-orchestrator -p di-worker -p kubectl-di

images: binaries ## Build the images
	@mkdir -p $(IMAGES)
	@kind/build-image $(REGISTRY)/di-orchestrator:v$(VERSION) $(RELEASE)/di-orchestrator $(IMAGES)/di-orchestrator.tar
	@kind/build-image $(REGISTRY)/di-worker:v$(VERSION) $(RELEASE)/di-worker $(IMAGES)/di-worker.tar

cluster: ## Start the cluster
	@kind/up

deploy: images cluster ## Install the orchestrator on the cluster
	@kind/install $(IMAGES)

down: ## Remove the cluster
	@kind/down

plugin: ## Build the plugin
	cargo build --release --locked -p kubectl-di

wheel: $(MATURIN)/bin/maturin ## Build the Python package as a wheel in target/wheels
	$< build --release --locked --out $(CARGO_TARGET_DIR)/wheels

$(MATURIN)/bin/maturin:
	python3 -m venv --clear $(MATURIN)
	$(MATURIN)/bin/pip install --quiet --no-cache-dir maturin==$(MATURIN_VERSION)

dist: images $(MATURIN)/bin/maturin $(CYCLONEDX)/bin/cargo-cyclonedx ## Build what a release publishes, except the plugin's archives, in target/dist
	@rm -rf $(DIST)
	$(MATURIN)/bin/maturin sdist --out $(DIST)
	$(MATURIN)/bin/maturin build --release --locked --out $(DIST)
	@CYCLONEDX=$(CYCLONEDX)/bin/cargo-cyclonedx packaging/dist $(IMAGES) $(DIST)

$(CYCLONEDX)/bin/cargo-cyclonedx:
	cargo install cargo-cyclonedx --version $(CYCLONEDX_VERSION) --locked --root $(CYCLONEDX)

# Packages are built with this target, too: DESTDIR=... is the staging folder.
install: binaries ## Install the plugin, its man pages and completions below PREFIX
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$(RELEASE)/kubectl-di" cmd/kubectl-di/kubectl_complete-di "$(DESTDIR)$(PREFIX)/bin/"
	"$(RELEASE)/kubectl-di" __generate "$(DESTDIR)$(PREFIX)"

uninstall: ## Remove the installed files below PREFIX
	rm -f "$(DESTDIR)$(PREFIX)/bin/kubectl-di" "$(DESTDIR)$(PREFIX)/bin/kubectl_complete-di" \
	  "$(DESTDIR)$(PREFIX)"/share/man/man1/kubectl-di.1 "$(DESTDIR)$(PREFIX)"/share/man/man1/kubectl-di-*.1 \
	  "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/kubectl-di" \
	  "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kubectl-di" \
	  "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kubectl-di.fish"
