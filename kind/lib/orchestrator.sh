# shellcheck shell=bash
# The orchestrator on the cluster of KUBECONFIG.

# await_orchestrator: waits until its pods are ready and the API server reaches its webhooks; kube-proxy adds a delay.
await_orchestrator() {
  local deadline=$(($(now) + 60 * 1000000)) complaints
  kubectl -n di-system rollout status deployment/di-webhook --timeout=120s >/dev/null || return 1
  until complaints=$(kubectl create --dry-run=server -f "$KIND_DIR/../manifests/samples/serial.yaml" 2>&1) ||
    [[ $complaints == *AlreadyExists* ]]; do
    if (($(now) > deadline)); then
      printf '%s\n' "$complaints" >&2
      return 1
    fi
    sleep 0.2
  done
}
