# shellcheck shell=bash
# Daemons: each runs in the cluster's cgroup and has a log and a pidfile.

# start_time PID: together with the pid it identifies a process; empty if that has ended or is a zombie.
start_time() {
  # The name in parentheses may contain blanks; after it come the state and, 19 fields later, the start time.
  sed -E 's/^.*\) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'
}

log_of() { printf '%s/log/%s.log' "$STATE" "$1"; }

# Closes all files of the caller: the lock, and pipes that a reader waits for, as make does for its job server.
close_inherited() {
  local fd
  for fd in "/proc/$BASHPID/fd"/*; do
    fd=${fd##*/}
    if ((fd > 2)); then exec {fd}>&-; fi
  done
}

# daemon NAME COMMAND...: starts it with setsid, so that an interrupt at the caller's terminal does not reach it.
daemon() {
  local name=$1 pid home
  shift
  home=$(cgroup_home)/$CGROUP/daemons
  (
    echo "$BASHPID" >"$home/cgroup.procs"
    close_inherited
    exec setsid "$@"
  ) >>"$(log_of "$name")" 2>&1 </dev/null &
  pid=$!
  disown "$pid"
  printf '%s %s\n' "$pid" "$(start_time "$pid")" >"$STATE/run/$name.pid"
}

daemon_pid() { # prints the pid if the same process still runs
  local pid started
  read -r pid started 2>/dev/null <"$STATE/run/$1.pid" || return 1
  [[ -n $started && $(start_time "$pid" 2>/dev/null) == "$started" ]] || return 1
  printf '%s' "$pid"
}

daemon_stop() {
  local pid i
  pid=$(daemon_pid "$1") || { rm -f "$STATE/run/$1.pid"; return 0; }
  kill -TERM "$pid" 2>/dev/null || true
  for i in {1..100}; do
    daemon_pid "$1" >/dev/null || break
    ((i == 60)) && kill -KILL "$pid" 2>/dev/null
    sleep 0.05
  done
  rm -f "$STATE/run/$1.pid"
}

# await LABEL DAEMON SECONDS COMMAND...: polls COMMAND, and fails early if the daemon has exited.
await() {
  local label=$1 name=$2 limit=$3 began
  shift 3
  began=$(now)
  until "$@" >/dev/null 2>&1; do
    daemon_pid "$name" >/dev/null || die_with_log "$(log_of "$name")" "$label failed: $name exited"
    (($(now) - began < limit * 1000000)) || die_with_log "$(log_of "$name")" "$label is not ready after $limit s"
    sleep 0.1
  done
  say "$label ready ($(seconds_since "$began"))"
}
