# The two commands: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
RELEASE := $(CARGO_TARGET_DIR)/release
IMAGES := $(CARGO_TARGET_DIR)/images

.DEFAULT_GOAL := help
FUZZ_SECONDS ?= 180
PREFIX ?= /usr/local
CARGO_FUZZ := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/di-orchestrator/cargo-fuzz

.PHONY: help demo test lint unit faults newer selftest compiled e2e bench bench-quick bench-programs fuzz generate binaries images cluster deploy down plugin install uninstall

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 14

demo: ## From nothing to a DIJob that trained on a real cluster
	@kind/demo

# Compiling takes both cores. What runs then, end-to-end tests on the cluster and the others, waits for most of its time.
test: ## Everything that must pass
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target compiled images selftest
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target unit e2e

compiled:
	@$(MAKE) --no-print-directory --jobs=1 lint
	cargo test --workspace --locked --no-run

lint: ## Formatting, clippy, shell scripts
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	@kind/lint
	@manifests/render default | diff - manifests/install.yaml >/dev/null || { echo "manifests/install.yaml has drifted: run make generate"; exit 1; }
	@manifests/render webhook-only | diff - manifests/install-webhook-only.yaml >/dev/null || { echo "manifests/install-webhook-only.yaml has drifted: run make generate"; exit 1; }

# More at a time than there are cores, for they wait much of their time.
unit: export RUST_TEST_THREADS ?= 3
unit: ## Unit tests, and tests against a real etcd and kube-apiserver
	KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked
	DI_FAULTS=25 DI_SEED=1 KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked --tests --quiet -- $(SOME_FUNCTIONAL)

# All targets are named there, for one alone has dependencies with other features, which would be compiled for it.
SOME_FUNCTIONAL := lifecycle::a_collector_that_fails endpoint::the_pods_that_come
# Tests that fail print their seed. What the document of the endpoint promises does not hold there.
faults: ## The tests against a real API server while a quarter of all requests to it fails (DI_SEED=N repeats a run)
	DI_FAULTS=$${DI_FAULTS:-25} KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked --test suite -- --skip endpoint_schema::

newer: ## What the definitions say where the server has CEL, on one of the newest Kubernetes
	CRD_SERVER=$$(kind/crd-server) KUBEBUILDER_ASSETS=$$(kind/assets) cargo test --workspace --locked --test newer

selftest: ## The cluster's own scripts, on a cluster that they make and remove
	@kind/selftest

e2e: deploy ## End-to-end tests on the cluster, which is brought up when it is not
	@tests/e2e/run

fuzz: $(CARGO_FUZZ)/bin/cargo-fuzz ## Feed rubbish to the webhooks and the validator, FUZZ_SECONDS each
	@fuzz/run $< $(FUZZ_SECONDS)

$(CARGO_FUZZ)/bin/cargo-fuzz:
	cargo install cargo-fuzz --locked --root $(CARGO_FUZZ)

# The cluster that some need comes up only once the others have been measured, which it would disturb.
bench: bench-programs ## Measure everything, and write docs/benchmarks.md (most of an hour; leaves a cluster up; BENCH="--only b1,b5" for some)
	KUBEBUILDER_ASSETS=$$(kind/assets) $(RELEASE)/di-bench run \
	  --cluster 'make --no-print-directory deploy >&2 && eval "$$(kind/env)" && echo "$$KUBECONFIG"' $(BENCH)

bench-quick: bench-programs ## Whether the benchmarks work, but for what needs nodes; writes to target/bench
	@mkdir -p $(CARGO_TARGET_DIR)/bench
	KUBEBUILDER_ASSETS=$$(kind/assets) $(RELEASE)/di-bench run --quick --output $(CARGO_TARGET_DIR)/bench $(BENCH)

bench-programs:
	cargo build --release --locked -p di-orchestrator -p di-bench -p kubectl-di

generate: ## Write the custom resource definitions, the golden copies of them, and the manifests as one file each
	cargo run -q -p di-orchestrator -- crds --output manifests/crds
	manifests/render default >manifests/install.yaml
	manifests/render webhook-only >manifests/install-webhook-only.yaml
	INSTA_UPDATE=always cargo test -q --workspace --test crds

binaries: ## Build the programs that go into images, and the plugin
	cargo build --release --locked -p di-orchestrator -p di-worker -p kubectl-di

images: binaries ## Build the images
	@mkdir -p $(IMAGES)
	@kind/build-image di-orchestrator:dev $(RELEASE)/di-orchestrator $(IMAGES)/di-orchestrator.tar
	@kind/build-image di-worker:dev $(RELEASE)/di-worker $(IMAGES)/di-worker.tar

cluster: ## Bring the cluster up
	@kind/up

deploy: images cluster ## Install the orchestrator on the cluster
	@kind/install $(IMAGES)

down: ## Take the cluster down
	@kind/down

plugin: ## Build the plugin
	cargo build --release --locked -p kubectl-di

# What a package is made of, too: DESTDIR=... for a folder that is not the system's.
install: binaries ## Install the plugin, its man pages and completions below PREFIX
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$(RELEASE)/kubectl-di" cmd/kubectl-di/kubectl_complete-di "$(DESTDIR)$(PREFIX)/bin/"
	"$(RELEASE)/kubectl-di" __generate "$(DESTDIR)$(PREFIX)"

uninstall: ## Remove what install has put below PREFIX
	rm -f "$(DESTDIR)$(PREFIX)/bin/kubectl-di" "$(DESTDIR)$(PREFIX)/bin/kubectl_complete-di" \
	  "$(DESTDIR)$(PREFIX)"/share/man/man1/kubectl-di.1 "$(DESTDIR)$(PREFIX)"/share/man/man1/kubectl-di-*.1 \
	  "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/kubectl-di" \
	  "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kubectl-di" \
	  "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kubectl-di.fish"
