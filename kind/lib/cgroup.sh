# shellcheck shell=bash
# All processes of a native cluster, daemons and containers, are below one cgroup path. With it `down` finds all of them,
# also orphaned ones, and no process of another program.

CGROUP=di-cluster-$CLUSTER-$(printf %s "$STATE" | cksum | cut -d' ' -f1)

# Mount points of all cgroup hierarchies: many with v1 and hybrid, one with v2.
cgroup_mounts() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }

# As kubelet decides it: version 2 only if there is no hierarchy of version 1.
cgroup_version() { if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then echo 2; else echo 1; fi; }

# The hierarchy of the daemons: if possible one that kubelets do not use to account resources.
cgroup_home() {
  local mount
  for mount in /sys/fs/cgroup/pids /sys/fs/cgroup/systemd /sys/fs/cgroup; do
    [[ -e $mount/cgroup.procs ]] && printf '%s' "$mount" && return
  done
  die "no cgroup hierarchy at /sys/fs/cgroup"
}

# cgroup_create PATH: creates it in every hierarchy, since kubelet needs its cgroupRoot in each controller.
cgroup_create() {
  local mount part dir controller
  while read -r mount; do
    dir=$mount
    for part in ${1//\// }; do
      if [[ -e $dir/cgroup.subtree_control ]]; then
        for controller in $(<"$dir/cgroup.controllers"); do
          echo "+$controller" >"$dir/cgroup.subtree_control" 2>/dev/null || true
        done
      fi
      dir=$dir/$part
      mkdir -p "$dir"
      # A new cpuset is empty; it accepts processes once it has CPUs and memory nodes (v1).
      if [[ -e $dir/cpuset.cpus && ! -e $dir/cgroup.subtree_control ]]; then
        cat "${dir%/*}/cpuset.cpus" >"$dir/cpuset.cpus"
        cat "${dir%/*}/cpuset.mems" >"$dir/cpuset.mems"
      fi
    done
  done < <(cgroup_mounts)
}

# All folders of the cluster's cgroups, deepest first.
cgroup_dirs() {
  local mount
  while read -r mount; do
    [[ -d $mount/$CGROUP ]] && find "$mount/$CGROUP" -depth -type d
  done < <(cgroup_mounts)
  return 0
}

cgroup_pids() {
  local dir
  cgroup_dirs | while read -r dir; do cat "$dir/cgroup.procs" 2>/dev/null || true; done | sort -un
}

# Kills repeatedly: a container's process may fork, or start late, during the scan.
cgroup_kill() {
  local attempt pids
  for attempt in {1..100}; do
    mapfile -t pids < <(cgroup_pids)
    ((${#pids[@]} == 0)) && return
    kill -KILL "${pids[@]}" 2>/dev/null || true
    sleep 0.05
  done
  die "cannot kill these processes of cluster '$CLUSTER' in $attempt attempts: ${pids[*]}"
}

cgroup_remove() {
  local dir attempt
  for attempt in {1..400}; do
    cgroup_dirs | while read -r dir; do rmdir "$dir" 2>/dev/null || true; done
    [[ -z $(cgroup_dirs) ]] && return
    ((attempt)) && sleep 0.05
  done
}
