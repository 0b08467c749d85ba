# shellcheck shell=bash
# The network of a native cluster: one network namespace for the control plane and one for each node, connected by a
# bridge in the first. None has a default route, so packets to pods and Services cannot leave the machine.
# NetworkPolicies are not enforced: Debian has no plugin for them.

CONTROL_PLANE=$CLUSTER-control-plane
CONTROL_PLANE_IP=172.30.0.1
SERVICE_RANGE=10.96.0.0/16

node_ip() { printf '172.30.0.%d' $(($1 + 10)); }
pod_range() { printf '10.244.%d.0/24' "$1"; }

# The first process of a namespace. Folders that daemons use exclusively (/var/lib/kubelet, /var/log/pods, /run/…) are
# private to it: two kubelets in one /var/log/pods remove each other's logs. The private folders hide the host's inside
# the namespace. Mounts and network disappear with the last process of the namespace.
# shellcheck disable=SC2016 # expanded by the namespace's own shell
NAMESPACE_INIT='
  set -e
  cd /
  for dir in run var/lib var/log var/local; do
    mkdir -p "$1/$dir"
    mount --bind "$1/$dir" "/$dir"
  done
  mkdir -p /var/local/di-storage /run/netns
  mount --bind "$2" /var/local/di-storage
  ip link set lo up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  exec sleep infinity
'

namespace_ready() { [[ $(cat "/proc/$(daemon_pid "$1")/comm") == sleep ]]; }

namespace_create() {
  daemon "$1" unshare --net --mount --propagation slave \
    bash -c "$NAMESPACE_INIT" bash "$STATE/nodes/$1" "$STATE/storage"
}

# inside NAMESPACE COMMAND...: not `ip netns exec`, which mounts a new /sys that hides the cgroups from kubelet.
inside() {
  local pid
  pid=$(daemon_pid "$1") || die "namespace $1 has no process; run $KIND_DIR/down, then $KIND_DIR/up"
  shift
  nsenter --target "$pid" --net --mount -- "$@"
}

# The same for a daemon: its pid must be that of the command itself.
daemon_inside() { # daemon_inside NAMESPACE NAME COMMAND...
  local pid name=$2
  pid=$(daemon_pid "$1")
  shift 2
  daemon "$name" nsenter --target "$pid" --net --mount -- "$@"
}

network_control_plane() {
  inside "$CONTROL_PLANE" bash -ec "
    ip link add nodes type bridge
    ip addr add $CONTROL_PLANE_IP/24 dev nodes
    ip link set nodes up
    # Do not filter frames between nodes in this namespace.
    [ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables
    # A call to a Service (a webhook) needs a route before kube-proxy's rules can rewrite it.
    ip route add $SERVICE_RANGE dev nodes
  "
}

network_node() { # network_node INDEX WORKERS
  local node other routes=''
  node=$(worker_name "$1")
  for ((other = 1; other <= $2; other++)); do
    ((other == $1)) || routes+="ip route add $(pod_range "$other") via $(node_ip "$other")"$'\n'
  done
  inside "$CONTROL_PLANE" bash -ec "
    ip link add node$1 type veth peer name eth0 netns $(daemon_pid "$node")
    ip link set node$1 master nodes up
  "
  inside "$node" bash -ec "
    ip addr add $(node_ip "$1")/24 dev eth0
    ip link set eth0 up
    ip route add $SERVICE_RANGE dev eth0
    $routes
  "
  inside "$CONTROL_PLANE" ip route add "$(pod_range "$1")" via "$(node_ip "$1")"
}

# The only access from outside: a loopback port of the host, a UNIX socket that no namespace hides, the API server.
# socat has no timeout. Its default backlog of 5 would drop a test's burst of connections.
network_forward_api() {
  local socket=$STATE/api.sock
  ((${#socket} < 104)) || die "$socket: too long for a UNIX socket; use a shorter DI_CLUSTER_DIR"
  daemon_inside "$CONTROL_PLANE" api-inside \
    socat "UNIX-LISTEN:$socket,fork,backlog=1024,mode=600" "TCP:$CONTROL_PLANE_IP:6443,nodelay"
  daemon api-outside \
    socat "TCP-LISTEN:$API_PORT,bind=127.0.0.1,reuseaddr,fork,backlog=1024,nodelay" "UNIX-CONNECT:$socket"
}

# Derives a port from the cluster's name, below the ephemeral range; takes the next one that is free.
choose_api_port() { # sets API_PORT
  local port=$((20000 + $(printf %s "$STATE" | cksum | cut -d' ' -f1) % 10000))
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  API_PORT=$port
}
