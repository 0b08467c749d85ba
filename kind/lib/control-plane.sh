# shellcheck shell=bash
# etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

POD_RANGE=10.244.0.0/16 # see pod_range

start_etcd() {
  daemon_inside "$CONTROL_PLANE" etcd "$K8S_BIN/etcd" --name "$CLUSTER" --data-dir "$STATE/etcd" --unsafe-no-fsync \
    --logger zap --log-level warn --quota-backend-bytes 8589934592 \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster "$CLUSTER=http://127.0.0.1:2380"
}

etcd_ready() { inside "$CONTROL_PLANE" curl -sf --max-time 1 http://127.0.0.1:2379/health; }

start_apiserver() {
  # Tests that are not root read the audit log; the server keeps the mode of an existing file.
  mkdir -p "$STATE/audit"
  : >>"$STATE/audit/audit.log"
  daemon_inside "$CONTROL_PLANE" kube-apiserver "$K8S_BIN/kube-apiserver" \
    --etcd-servers=http://127.0.0.1:2379 --advertise-address="$CONTROL_PLANE_IP" --secure-port=6443 \
    --service-cluster-ip-range="$SERVICE_RANGE" --allow-privileged=true \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement \
    --client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --cert-dir="$STATE/pki" \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$PKI/service-accounts.key" \
    --service-account-signing-key-file="$PKI/service-accounts.key" \
    --kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
    --kubelet-preferred-address-types=InternalIP \
    --audit-policy-file="$STATE/conf/audit-policy.yaml" --audit-log-path="$STATE/audit/audit.log" \
    --audit-log-maxsize=4096
}

start_controller_manager() {
  # No leader election: a lost lease, while a test restarts the API server, would end the process.
  daemon_inside "$CONTROL_PLANE" kube-controller-manager "$K8S_BIN/kube-controller-manager" \
    --kubeconfig="$STATE/conf/kube-controller-manager.kubeconfig" --leader-elect=false --bind-address=127.0.0.1 \
    --use-service-account-credentials \
    --root-ca-file="$PKI/ca.crt" --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --service-account-private-key-file="$PKI/service-accounts.key" \
    --cluster-cidr="$POD_RANGE" --allocate-node-cidrs=false --configure-cloud-routes=false \
    --cert-dir="$STATE/pki" --flex-volume-plugin-dir="$STATE/volume-plugins" \
    --node-monitor-grace-period=20s # half the default: node-loss tests wait for it
}

start_scheduler() {
  daemon_inside "$CONTROL_PLANE" kube-scheduler "$K8S_BIN/kube-scheduler" \
    --kubeconfig="$STATE/conf/kube-scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1
}

# Runs in every namespace: on nodes for pods, in the control plane so that the API server reaches webhooks by Service.
# Newer versions wait for their Node, so the control plane has the name of a worker. They exit when it is deleted, and expect
# to be started again. If one exits within seconds, its daemon ends, so that the fault is seen.
start_kube_proxy() { # start_kube_proxy NAMESPACE NODE IP
  # shellcheck disable=SC2016 # expanded by the daemon's shell
  daemon_inside "$1" "kube-proxy-$1" bash -c 'while began=$SECONDS; "$@"; ((SECONDS - began > 3)); do sleep 1; done' bash "$K8S_BIN/kube-proxy" \
    --kubeconfig="$STATE/conf/kube-proxy.kubeconfig" --hostname-override="$2" --bind-address="$3" \
    --proxy-mode=iptables --cluster-cidr="$POD_RANGE" --conntrack-max-per-core=0 --oom-score-adj=0 \
    --healthz-bind-address=127.0.0.1 --metrics-bind-address=127.0.0.1
}
