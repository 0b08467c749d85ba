# shellcheck shell=bash
# The programs of Kubernetes: those of DI_KUBERNETES_BIN, or else built from Debian's source package once per machine, since
# Debian's binary package has only kubectl.
# shellcheck source=versions.sh
source "$KIND_DIR/lib/versions.sh"

K8S_PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)

given_folder() { realpath --canonicalize-missing "$DI_KUBERNETES_BIN"; }

given_etcd() { [[ -n ${DI_KUBERNETES_BIN:-} && -x $DI_KUBERNETES_BIN/etcd ]]; }

# select_kubernetes: sets K8S_VERSION and K8S_BIN. Other given programs have another K8S_BIN.
select_kubernetes() {
  local programs=("${K8S_PROGRAMS[@]}") folder version key
  [[ -n ${DI_KUBERNETES_BIN:-} ]] || return 0
  folder=$(given_folder)
  require_programs "$folder"
  version=$("$folder/kubelet" --version) || die "DI_KUBERNETES_BIN='$folder': kubelet --version fails"
  minor_version "$version" >/dev/null ||
    die "DI_KUBERNETES_BIN='$folder': kubelet is '$version'; use Kubernetes 1.$OLDEST_MINOR to 1.$NEWEST_MINOR"
  if given_etcd; then programs+=(etcd); fi
  key=$(stat --dereference --format '%n %s %Y' "${programs[@]/#/$folder/}" | cksum)
  K8S_VERSION=${version#Kubernetes v}
  K8S_BIN=$CACHE/kubernetes-given-$K8S_VERSION-${key%% *}
}

require_programs() { # require_programs FOLDER
  local program
  for program in "${K8S_PROGRAMS[@]}"; do
    [[ -f $1/$program && -x $1/$program ]] ||
      die "DI_KUBERNETES_BIN='$1': $program is missing; the folder needs ${K8S_PROGRAMS[*]}"
  done
}

# Links to the given programs: their folder may be read-only, and may have no etcd.
link_given_kubernetes() {
  local program folder
  folder=$(given_folder)
  mkdir -p "$K8S_BIN"
  for program in "${K8S_PROGRAMS[@]}"; do ln -sfn "$folder/$program" "$K8S_BIN/$program"; done
}

# KUBEBUILDER_ASSETS must have etcd next to kube-apiserver and kubectl.
link_etcd() {
  local etcd
  if given_etcd; then etcd=$(given_folder)/etcd; else etcd=$(command -v etcd); fi
  ln -sfn "$etcd" "$K8S_BIN/etcd"
}

kubernetes_built() {
  local program
  for program in "${K8S_PROGRAMS[@]}"; do
    [[ -x $K8S_BUILT/$program ]] || return 1
  done
}

# Uses a separate sources list with this machine's mirrors, so that its apt settings do not change.
fetch_kubernetes_source() {
  local signed='' options
  [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] &&
    signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] '
  mkdir -p apt/lists/partial
  # shellcheck disable=SC2016 # apt fills these in
  apt-get indextargets --format "deb-src $signed\$(REPO_URI) \$(RELEASE) \$(COMPONENT)" \
    'Created-By: Packages' 'Origin: Debian' | sort -u >apt/sources.list
  options=(-q -o "Dir::Etc::sourcelist=$PWD/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$PWD/apt/lists" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" source --download-only kubernetes
  compgen -G "kubernetes_*$K8S_VERSION*.dsc" >/dev/null || {
    echo "Debian's source package is not Kubernetes $K8S_VERSION: this needs Debian 12 (bookworm)"
    return 1
  }
  dpkg-source --no-check -x kubernetes_*.dsc src
}

in_build() { # in_build COMMAND...: runs in the source folder, without variables of the caller that change the build
  # A calling `make` must not pass its flags and targets.
  env --chdir=src -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES \
    KUBE_GIT_VERSION="v$K8S_VERSION" KUBE_GIT_TREE_STATE=clean KUBE_GIT_COMMIT=debian \
    GO111MODULE=off GOFLAGS='' GOPROXY=off GOCACHE="$PWD/gocache" HOME="$PWD" "$@"
}

# Reports progress on descriptor 3, since its output is the log.
compile_kubernetes() {
  local vendored=src/vendor/github.com/modern-go/reflect2 patch program began
  # reflect2 1.0.1 in a program built with Go >= 1.18 crashes at the first custom resource ("unexpected fault address").
  rm -rf "$vendored"
  cp -rL "$REFLECT2" "$vendored"
  for patch in "$KIND_DIR"/patches/*.patch; do patch -p1 -d src <"$patch"; done
  began=$(now)
  in_build make generated_files
  say "  generated code ($(seconds_since "$began"))" >&3
  for program in "${K8S_PROGRAMS[@]}"; do
    began=$(now)
    in_build hack/make-rules/build.sh "cmd/$program"
    say "  $program ($(seconds_since "$began"))" >&3
  done
}

build_kubernetes() (
  set -euo pipefail
  rm -rf "$1"
  mkdir -p "$1"
  cd "$1"
  fetch_kubernetes_source
  compile_kubernetes
  mkdir -p "$K8S_BUILT"
  # Renames each program into place, so that kubernetes_built never sees an incomplete one.
  local program
  for program in "${K8S_PROGRAMS[@]}"; do
    install -m 755 "src/_output/bin/$program" "$K8S_BUILT/.$program"
    mv "$K8S_BUILT/.$program" "$K8S_BUILT/$program"
  done
)

ensure_kubernetes() {
  if [[ -n ${DI_KUBERNETES_BIN:-} ]]; then
    link_given_kubernetes
  elif ! kubernetes_built; then
    build_with_log
  fi
  link_etcd
}

build_with_log() {
  local began log=$CACHE/log/kubernetes-build.log work=$CACHE/kubernetes-build result=0
  mkdir -p "${log%/*}"
  began=$(now)
  say "building Kubernetes $K8S_VERSION from Debian's source package: once per machine, about 6 minutes on 2 cores (log: $log)"
  # Not `build || die`: bash would disable errexit inside.
  set +e
  build_kubernetes "$work" 3>&1 >"$log" 2>&1
  result=$?
  set -e
  ((result == 0)) || die_with_log "$log" "cannot build Kubernetes $K8S_VERSION"
  rm -rf "$work"
  say "Kubernetes built ($(seconds_since "$began"))"
}
