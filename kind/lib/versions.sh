# shellcheck shell=bash
# What depends on the version of Kubernetes. The functions get all that they need as arguments, and only print.

OLDEST_MINOR=20 NEWEST_MINOR=36

# minor_version VERSION: prints the minor version in the output of `kubelet --version`. Fails if it is not supported.
minor_version() {
  [[ $1 =~ ^Kubernetes\ v1\.([0-9]+)\. ]] || return 1
  ((BASH_REMATCH[1] >= OLDEST_MINOR && BASH_REMATCH[1] <= NEWEST_MINOR)) || return 1
  printf '%d' "${BASH_REMATCH[1]}"
}

# kubelet_options VERSION CGROUPS: prints what this kubelet needs on a machine with these cgroups (1 or 2): flags, which
# start with --, and lines of its configuration.
kubelet_options() {
  local minor endpoint=unix:///run/containerd/containerd.sock
  minor=$(minor_version "$1") || return 1
  # Kubernetes 1.27 removed the first flag, and moved the second to the configuration.
  if ((minor < 27)); then
    printf '%s\n' --container-runtime=remote "--container-runtime-endpoint=$endpoint"
  else
    printf 'containerRuntimeEndpoint: %s\n' "$endpoint"
  fi
  # Since 1.35 the default is true: kubelet does not start on cgroup v1.
  if ((minor >= 35 && $2 == 1)); then echo 'failCgroupV1: false'; fi
}
