# shellcheck shell=bash
# The Debian packages of a native cluster. A command that exists is used, also if it is from another source.

RUNTIME_COMMANDS=(
  containerd:containerd ctr:containerd runc:runc iptables:iptables ip:iproute2 conntrack:conntrack
  socat:socat dnsmasq:dnsmasq-base buildah:buildah jq:jq curl:curl openssl:openssl nsenter:util-linux
)
CNI_PLUGINS=/usr/lib/cni # Debian's folder of containernetworking-plugins
BUILD_COMMANDS=(go:golang-go rsync:rsync jq:jq make:make dpkg-source:dpkg-dev)
REFLECT2=/usr/share/gocode/src/github.com/modern-go/reflect2

missing_commands() { # missing_commands COMMAND:PACKAGE...: prints the packages
  local entry
  for entry; do
    command -v "${entry%%:*}" >/dev/null || printf '%s\n' "${entry##*:}"
  done
}

missing_packages() { # missing_packages [etcd] [c] [build]: with etcd, a C compiler, or all that builds Kubernetes
  {
    missing_commands "${RUNTIME_COMMANDS[@]}"
    [[ -x $CNI_PLUGINS/ptp ]] || echo containernetworking-plugins
    if [[ " $* " == *" etcd "* ]]; then missing_commands etcd:etcd-server; fi
    if [[ " $* " == *" c "* ]]; then
      missing_commands gcc:gcc
      [[ -e /usr/include/stdio.h ]] || echo libc6-dev
    fi
    if [[ " $* " == *" build "* ]]; then
      missing_commands "${BUILD_COMMANDS[@]}"
      [[ -d $REFLECT2 ]] || echo golang-github-modern-go-reflect2-dev
    fi
  } | sort -u
}

# Debian starts the service of a package during its installation. Only the programs are needed: no etcd on the host.
without_services() {
  local policy=/usr/sbin/policy-rc.d result=0
  if [[ -e $policy ]]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  "$@" || result=$?
  rm -f "$policy"
  return "$result"
}

install_packages() { # install_packages [etcd] [c] [build]
  local missing
  mapfile -t missing < <(missing_packages "$@")
  apt_install "${missing[@]}"
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} == 0)) || die_with_log "$CACHE/log/apt.log" "packages are still missing after apt-get install: ${missing[*]}"
}

install_missing() { # install_missing COMMAND:PACKAGE...
  local missing
  mapfile -t missing < <(missing_commands "$@")
  apt_install "${missing[@]}"
}

apt_install() { # apt_install PACKAGE...
  local log=$CACHE/log/apt.log began
  (($#)) || return 0
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    die "Debian packages are missing; install them as root: apt-get install --no-install-recommends $*"
  fi
  mkdir -p "${log%/*}"
  began=$(now)
  say "installing $# Debian packages: $*"
  {
    apt-get update -q &&
      DEBIAN_FRONTEND=noninteractive without_services \
        apt-get install -q -y --no-install-recommends "$@"
  } >"$log" 2>&1 || die_with_log "$log" "apt-get install failed"
  say "packages installed ($(seconds_since "$began"))"
}
