# shellcheck shell=bash
# Names, paths and messages of all scripts.
set -euo pipefail
umask 022 # unprivileged users in images and pods must be able to read our files
PATH=$PATH:/usr/sbin:/sbin
# Exit on an interrupt: otherwise a command that handles it looks failed.
trap 'exit 130' INT

KIND_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CLUSTER=${DI_CLUSTER:-di}
CLUSTER_ROOT=${DI_CLUSTER_DIR:-/var/tmp/di-cluster}
STATE=$CLUSTER_ROOT/$CLUSTER
CACHE=${DI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/di-orchestrator}
# The Kubernetes that is built. select_kubernetes replaces it by that of DI_KUBERNETES_BIN.
K8S_VERSION=1.20.2
# The folder depends on the patches, since they change the binaries.
K8S_BUILT=$CACHE/kubernetes-$K8S_VERSION-$(cat "$KIND_DIR"/patches/*.patch | cksum | cut -d' ' -f1)
K8S_BIN=$K8S_BUILT
PAUSE_IMAGE=di-pause:$(cksum <"$KIND_DIR/lib/pause.c" | cut -d' ' -f1)
PAUSE_ARCHIVE=$CACHE/${PAUSE_IMAGE/:/-}.tar
DEFAULT_WORKERS=2
LOCK_FD=''
export KIND_DIR CACHE K8S_VERSION K8S_BUILT K8S_BIN PAUSE_IMAGE PAUSE_ARCHIVE DEFAULT_WORKERS

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# die_with_log LOG MESSAGE: prints the message, the path of the log and its last lines.
die_with_log() {
  local log=$1
  shift
  {
    printf '%s: %s\n' "$(basename "$0")" "$*"
    printf 'log: %s\n' "$log"
    [[ -r $log ]] && tail -n 15 "$log" | cut -c1-400 | sed 's/^/  | /'
  } >&2
  exit 1
}

[[ $CLUSTER =~ ^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$ ]] ||
  die "DI_CLUSTER='$CLUSTER': use at most 32 lower-case letters, digits and dashes"
[[ $CLUSTER_ROOT == /* ]] || die "DI_CLUSTER_DIR='$CLUSTER_ROOT': must be an absolute path"

now() { printf '%s' "${EPOCHREALTIME/./}"; }

# seconds_since MICROSECONDS: "1.3 s"
seconds_since() {
  local tenths=$((($(now) - $1) / 100000))
  printf '%d.%d s' $((tenths / 10)) $((tenths % 10))
}

# Allows one `up` or `down` of a cluster at a time. Daemons must not inherit the lock: see close_inherited.
lock_cluster() {
  mkdir -p "$CLUSTER_ROOT"
  exec {LOCK_FD}>"$CLUSTER_ROOT/.$CLUSTER.lock"
  flock -n "$LOCK_FD" && return
  say "another up or down of cluster '$CLUSTER' is running; waiting for it"
  flock "$LOCK_FD"
}

docker_works() { docker info >/dev/null 2>&1; }

# A running cluster keeps its provider, also if Docker is available now.
provider() {
  if [[ -n ${DI_CLUSTER_PROVIDER:-} ]]; then
    printf '%s' "$DI_CLUSTER_PROVIDER"
  elif [[ -s $STATE/provider ]]; then
    cat "$STATE/provider"
  elif [[ -z ${DI_KUBERNETES_BIN:-} ]] && docker_works; then
    printf kind
  else
    printf native
  fi
}

load_provider() {
  PROVIDER=$(provider)
  case $PROVIDER in
    kind | native) ;;
    *) die "DI_CLUSTER_PROVIDER='$PROVIDER': must be kind or native" ;;
  esac
  if [[ -s $STATE/provider && $(<"$STATE/provider") != "$PROVIDER" ]]; then
    die "cluster '$CLUSTER' was created by provider $(<"$STATE/provider"), not $PROVIDER: remove it first with $KIND_DIR/down"
  fi
  # shellcheck source=/dev/null
  source "$KIND_DIR/lib/provider-$PROVIDER.sh"
}

require_cluster() {
  [[ -e $STATE/complete ]] || die "cluster '$CLUSTER' is not up (no $STATE/complete); run $KIND_DIR/up"
  # A running cluster keeps its programs, also if DI_KUBERNETES_BIN has changed.
  if [[ -s $STATE/kubernetes ]]; then K8S_BIN=$(<"$STATE/kubernetes"); fi
}

worker_name() { # worker_name INDEX: kind's own naming
  if (($1 == 1)); then printf '%s-worker' "$CLUSTER"; else printf '%s-worker%d' "$CLUSTER" "$1"; fi
}
