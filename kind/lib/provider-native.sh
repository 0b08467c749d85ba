# shellcheck shell=bash
# The cluster from Debian packages, without a container engine on the host.
for part in cgroup process packages network pki control-plane dns node; do
  # shellcheck source=/dev/null
  source "$KIND_DIR/lib/$part.sh"
done

native_node_index() {
  local i
  for ((i = 1; i <= $(<"$STATE/workers"); i++)); do
    [[ $(worker_name "$i") == "$1" ]] && printf '%d' "$i" && return
  done
  die "no node '$1' in cluster '$CLUSTER'"
}

native_nodes() {
  local i
  for ((i = 1; i <= $(<"$STATE/workers"); i++)); do worker_name "$i"; echo; done
}

runs_selected_kubernetes() { [[ -e $STATE/kubernetes && $(<"$STATE/kubernetes") == "$K8S_BIN" ]]; }

# require_visible VARIABLE FOLDER: the nodes need this folder of the host.
require_visible() {
  case $2/ in
    /run/* | /var/run/* | /var/lib/* | /var/log/* | /var/local/*)
      die "$1='$2': must not be in /run, /var/lib, /var/log or /var/local, which are private in the nodes" ;;
  esac
}

provider_healthy() { # provider_healthy WORKERS
  local pidfile name node
  [[ -e $STATE/complete && $(<"$STATE/workers") == "$1" ]] || return 1
  runs_selected_kubernetes || { say "cluster '$CLUSTER' runs other programs than those of $K8S_BIN"; return 1; }
  for pidfile in "$STATE"/run/*.pid; do
    name=$(basename "$pidfile" .pid)
    daemon_pid "$name" >/dev/null || { say "$name is not running"; return 1; }
  done
  # A test may have stopped the API server or a node, or just started it again.
  if [[ ! -e $STATE/run/kube-apiserver.pid ]]; then provider_node start "$CONTROL_PLANE"; fi
  api /readyz >/dev/null 2>&1 || (await "API server" kube-apiserver 60 api /readyz) || return 1
  for node in $(native_nodes); do
    if [[ ! -e $STATE/run/kubelet-$node.pid ]]; then provider_node start "$node"; fi
    node_ready "$node" >/dev/null || (await "$node" "kubelet-$node" 60 node_ready "$node") || return 1
  done
}

provider_up() { # provider_up WORKERS
  local i node
  ((EUID == 0)) || die "the native cluster needs root for network namespaces, mounts and cgroups"
  require_visible DI_CLUSTER_DIR "$CLUSTER_ROOT"
  if [[ -n ${DI_KUBERNETES_BIN:-} ]]; then require_visible DI_KUBERNETES_BIN "$(given_folder)"; fi
  "$KIND_DIR/binaries"

  mkdir -p "$STATE"/{run,log,conf,etcd}
  mkdir -m 1777 "$STATE/storage"
  echo "$1" >"$STATE/workers"
  echo "$K8S_BIN" >"$STATE/kubernetes"
  cp "$KIND_DIR/audit-policy.yaml" "$STATE/conf/" # the checkout may change under a running server
  choose_api_port
  cgroup_create "$CGROUP/daemons"
  pki_create "$1"
  write_containerd_config

  namespace_create "$CONTROL_PLANE"
  for ((i = 1; i <= $1; i++)); do namespace_create "$(worker_name "$i")"; done
  await "control plane network" "$CONTROL_PLANE" 10 namespace_ready "$CONTROL_PLANE"
  network_control_plane
  start_etcd
  for ((i = 1; i <= $1; i++)); do
    node=$(worker_name "$i")
    await "$node network" "$node" 10 namespace_ready "$node"
    network_node "$i" "$1"
    start_containerd "$i" "$node"
    cgroup_create "$CGROUP/$node"
    write_kubelet_config "$node"
  done
  await etcd etcd 30 etcd_ready
  start_apiserver
  network_forward_api
  for node in $(native_nodes); do
    await "$node containerd" "containerd-$node" 60 node_ctr "$node" version
    import_images "$node" "$PAUSE_ARCHIVE"
  done
  await "API server" kube-apiserver 90 api /readyz
  start_controller_manager
  start_scheduler
  start_dns
  start_kube_proxy "$CONTROL_PLANE" "$(worker_name 1)" "$CONTROL_PLANE_IP"
  for ((i = 1; i <= $1; i++)); do
    node=$(worker_name "$i")
    start_kube_proxy "$node" "$node" "$(node_ip "$i")"
    register_node "$i" "$node"
    start_kubelet "$i" "$node"
  done
  await "cluster DNS" dnsmasq 30 dns_ready
  # No pod can be created before the default service account exists.
  await "controller manager" kube-controller-manager 60 api /api/v1/namespaces/default/serviceaccounts/default
  for node in $(native_nodes); do
    await "$node" "kubelet-$node" 60 node_ready "$node"
    daemon_pid "kube-proxy-$node" >/dev/null || die_with_log "$(log_of "kube-proxy-$node")" "$node failed: kube-proxy exited"
  done
}

provider_down() {
  cgroup_kill
  cgroup_remove
  # The nodes' mounts were in their own mount namespaces, and disappeared with their processes.
  rm -rf "$STATE"
}

provider_leftovers() {
  local pid
  for pid in $(cgroup_pids); do echo "process $pid ($(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-80))"; done
  cgroup_dirs | sed 's/^/cgroup /'
  awk -v state="$STATE/" 'index($2, state) == 1 { print "mount " $2 }' /proc/mounts
}

provider_load_image() {
  local node
  for node in $(native_nodes); do
    import_images "$node" "$@"
    say "loaded into $node"
  done
}

provider_node() { # provider_node stop|start NODE
  local index
  if [[ $2 == "$CONTROL_PLANE" ]]; then
    if [[ $1 == stop ]]; then
      daemon_stop kube-apiserver
    elif ! daemon_pid kube-apiserver >/dev/null; then
      start_apiserver
    fi
    return
  fi
  index=$(native_node_index "$2")
  if [[ $1 == stop ]]; then
    daemon_stop "kubelet-$2"
  elif ! daemon_pid "kubelet-$2" >/dev/null; then
    start_kubelet "$index" "$2"
  fi
}
