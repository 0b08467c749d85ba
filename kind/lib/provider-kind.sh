# shellcheck shell=bash
# The cluster with kind, if a Docker engine works.

kind_nodes() { kind get nodes --name "$CLUSTER" 2>/dev/null; }
kind_kubectl() { kubectl --kubeconfig "$STATE/kubeconfig" "$@"; }

kind_require() {
  docker_works || die "provider kind needs a Docker engine: 'docker info' fails"
  local tool
  for tool in kind kubectl; do
    command -v "$tool" >/dev/null || die "Docker works, but $tool is not on PATH. Install it
  (kind: https://kind.sigs.k8s.io/docs/user/quick-start/#installation, or: go install sigs.k8s.io/kind@latest;
  kubectl: https://kubernetes.io/docs/tasks/tools/)
or set DI_CLUSTER_PROVIDER=native for the cluster from Debian's packages"
  done
}

provider_healthy() { # provider_healthy WORKERS
  local node
  kind_require
  [[ -e $STATE/complete && $(<"$STATE/workers") == "$1" ]] || return 1
  # A test may have left a node stopped.
  for node in $(kind_nodes); do
    [[ $(docker inspect --format '{{.State.Paused}}' "$node") != true ]] || docker unpause "$node" >/dev/null
  done
  kind_kubectl get --raw /readyz >/dev/null 2>&1 || { say "the API server of cluster '$CLUSTER' is not ready"; return 1; }
  kind_kubectl wait --for=condition=Ready nodes --all --timeout=60s >/dev/null 2>&1 || { say "some nodes of cluster '$CLUSTER' are not ready"; return 1; }
}

kind_config() { # kind_config WORKERS: see the head of config.yaml
  awk -v workers="$1" -v state="$STATE" '
    { sub(/hostPath: \.\//, "hostPath: " state "/") }
    /^  - role: worker/ { worker = 1 }
    worker { block = block $0 "\n"; next }
    { print }
    END { while (workers-- > 0) printf "%s", block }
  ' "$KIND_DIR/config.yaml"
}

provider_up() { # provider_up WORKERS
  local log=$STATE/log/kind.log
  mkdir -p "$STATE/log" "$STATE/audit"
  mkdir -m 1777 "$STATE/storage"
  echo "$1" >"$STATE/workers"
  cp "$KIND_DIR/audit-policy.yaml" "$STATE/"
  # The API server would create it readable by root only; it keeps the mode of an existing file.
  : >"$STATE/audit/audit.log"
  kind_config "$1" >"$STATE/kind.yaml"
  say "kind create cluster (log: $log)"
  kind create cluster --name "$CLUSTER" --config "$STATE/kind.yaml" --kubeconfig "$STATE/kubeconfig" --wait 180s \
    ${DI_KIND_NODE_IMAGE:+--image "$DI_KIND_NODE_IMAGE"} \
    >"$log" 2>&1 || die_with_log "$log" "kind create cluster failed"
}

provider_down() {
  local node
  if ! command -v kind >/dev/null || ! docker_works; then
    [[ ! -e $STATE ]] || die "cluster '$CLUSTER' was created by kind; removing it needs kind and a Docker engine"
    return 0
  fi
  for node in $(kind_nodes); do
    # Files of pods belong to their users, so remove them inside the node.
    docker unpause "$node" >/dev/null 2>&1 || true
    docker exec "$node" find /var/local/di-storage -mindepth 1 -delete >/dev/null 2>&1 || true
  done
  kind delete cluster --name "$CLUSTER" --kubeconfig "$STATE/kubeconfig" >/dev/null 2>&1 || true
  rm -rf "$STATE"
}

provider_leftovers() {
  docker_works || return 0
  docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$CLUSTER" | sed 's/^/container /'
}

provider_load_image() {
  local archive
  for archive; do
    kind load image-archive --name "$CLUSTER" "$archive"
    say "loaded $archive"
  done
}

provider_node() { # provider_node stop|start NODE: pauses the whole node, not only its kubelet
  kind_nodes | grep -qFx "$2" || die "no node '$2' in cluster '$CLUSTER'"
  local paused
  paused=$(docker inspect --format '{{.State.Paused}}' "$2")
  case $1/$paused in
    stop/false) docker pause "$2" >/dev/null ;;
    start/true) docker unpause "$2" >/dev/null ;;
  esac
}
