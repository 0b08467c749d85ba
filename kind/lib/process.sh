# shellcheck shell=bash
# Daemons: started in the cluster's cgroup, one log and one pidfile each.

# start_time PID: with the pid it names one process for good; empty when that has gone or is a zombie.
start_time() {
  # The name in parentheses may hold blanks; behind it come the state and, 19 fields on, the start time.
  sed -E 's/^.*\) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'
}

log_of() { printf '%s/log/%s.log' "$STATE" "$1"; }

# Nothing that the caller has open: not the lock, and no pipe whose end somebody waits for, as make does for that of its job server.
close_inherited() {
  local fd
  for fd in "/proc/$BASHPID/fd"/*; do
    fd=${fd##*/}
    if ((fd > 2)); then exec {fd}>&-; fi
  done
}

# daemon NAME COMMAND...: setsid, so that an interrupt at the caller's terminal does not reach it.
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

daemon_pid() { # prints the pid when that very process still runs
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

# await WHAT DAEMON SECONDS COMMAND...: polls COMMAND, and fails early when the daemon has died.
await() {
  local what=$1 name=$2 limit=$3 began
  shift 3
  began=$(now)
  until "$@" >/dev/null 2>&1; do
    daemon_pid "$name" >/dev/null || die_with_log "$(log_of "$name")" "$what failed: $name exited"
    (($(now) - began < limit * 1000000)) || die_with_log "$(log_of "$name")" "$what not ready within $limit s"
    sleep 0.1
  done
  say "$what ready ($(seconds_since "$began"))"
}
