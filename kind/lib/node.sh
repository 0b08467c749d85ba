# shellcheck shell=bash
# A node: containerd, kubelet and kube-proxy in their own namespace. Paths like /run are private to it, see network.sh.
# shellcheck source=versions.sh
source "$KIND_DIR/lib/versions.sh"

write_containerd_config() {
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc fails with "can't get final child's PID from pipe: EOF".
  cat >"$STATE/conf/containerd.toml" <<CONFIG
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/$PAUSE_IMAGE"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "$CNI_PLUGINS"
  conf_dir = "/var/lib/cni-conf"
CONFIG
}

# ptp: each pod has a routed link to its node. On a bridge, calls to itself or a neighbor through a Service would need
# the kernel's br_netfilter.
write_cni_config() { # write_cni_config INDEX NODE
  local dir=$STATE/nodes/$2/var/lib/cni-conf
  mkdir -p "$dir"
  cat >"$dir/10-di.conflist" <<CONFIG
{"cniVersion": "0.4.0", "name": "di", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
    "ranges": [[{"subnet": "$(pod_range "$1")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
CONFIG
}

options_of_kubelet() { kubelet_options "$("$K8S_BIN/kubelet" --version)" "$(cgroup_version)"; }

write_kubelet_config() { # write_kubelet_config NODE
  : >"$STATE/conf/resolv.conf" # no upstream: cluster names only
  # The disk is shared with the host: a full disk must not remove images or evict pods.
  cat >"$STATE/conf/kubelet-$1.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP/$1
enforceNodeAllocatable: []
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [$CONTROL_PLANE_IP]
resolvConf: $STATE/conf/resolv.conf
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: $PKI/ca.crt}}
nodeStatusUpdateFrequency: 4s
# This kubelet notices the end of some pods only in its sync of all pods, by default once a minute. Its default limit is
# 5 requests a second; newer versions have 50.
syncFrequency: 5s
kubeAPIQPS: 50
kubeAPIBurst: 100
eventRecordQPS: 0
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: 20Mi, imagefs.available: 20Mi}
volumePluginDir: /var/lib/kubelet/volume-plugins
$(options_of_kubelet | grep -v '^--' || true)
CONFIG
}

start_containerd() { # start_containerd INDEX NODE
  write_cni_config "$1" "$2"
  daemon_inside "$2" "containerd-$2" containerd --config "$STATE/conf/containerd.toml" --log-level warn
}

node_ctr() { inside "$1" ctr -n k8s.io "${@:2}"; }

import_images() { # import_images NODE ARCHIVE...
  local archive
  for archive in "${@:2}"; do node_ctr "$1" images import "$archive" >/dev/null; done
}

start_kubelet() { # start_kubelet INDEX NODE
  local flags
  mapfile -t flags < <(options_of_kubelet | grep '^--')
  daemon_inside "$2" "kubelet-$2" "$K8S_BIN/kubelet" \
    --config="$STATE/conf/kubelet-$2.yaml" --kubeconfig="$STATE/conf/$2.kubeconfig" --cert-dir=/var/lib/kubelet/pki \
    --hostname-override="$2" --node-ip="$(node_ip "$1")" "${flags[@]}"
}

# Created before its kubelet starts: with a pod range it is ready without kubelet's next status update. It needs some
# capacity, or kubelet 1.20 crashes.
register_node() { # register_node INDEX NODE
  local range
  range=$(pod_range "$1")
  api /api/v1/nodes --header 'Content-Type: application/json' --data @- >/dev/null <<NODE
{"metadata": {"name": "$2", "labels": {"kubernetes.io/hostname": "$2"}},
 "spec": {"podCIDR": "$range", "podCIDRs": ["$range"]},
 "status": {"capacity": {"pods": "0"}, "allocatable": {"pods": "0"}}}
NODE
}

# Ready, and without the not-ready taint: until the controller manager removes it, no pod is scheduled there.
node_ready() {
  api "/api/v1/nodes/$1" | jq -e '
    any(.status.conditions[]?; .type == "Ready" and .status == "True")
    and all(.spec.taints[]?; .key != "node.kubernetes.io/not-ready" and .key != "node.kubernetes.io/unreachable")'
}
