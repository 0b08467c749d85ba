# shellcheck shell=bash
# Builds images from a binary and its shared libraries, or from a root folder.

full_image_name() { # containerd looks up `di-selftest:dev` as docker.io/library/di-selftest:dev
  local first=${1%%/*}
  if [[ $1 != */* ]]; then
    printf 'docker.io/library/%s' "$1"
  elif [[ $first == *[.:]* || $first == localhost ]]; then
    printf '%s' "$1"
  else
    printf 'docker.io/%s' "$1"
  fi
}

# Prints the paths of the shared libraries and the loader of a binary; nothing for a static one.
shared_libraries() {
  local listing
  listing=$(ldd "$1" 2>&1) || {
    # shellcheck disable=SC2076
    [[ $listing =~ "not a dynamic executable" || $listing =~ "statically linked" ]] && return
    die "ldd $1: $listing"
  }
  if grep -q 'not found' <<<"$listing"; then die "$1: shared library missing: $(grep 'not found' <<<"$listing")"; fi
  grep -o '/[^ ]*' <<<"$listing" | sort -u
}

fill_rootfs() { # fill_rootfs BINARY|FOLDER DIR
  local library
  mkdir -p "$2/etc" "$2/tmp"
  if [[ -d $1 ]]; then cp --archive "$1/." "$2"; fi
  chmod 1777 "$2/tmp"
  printf 'root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/tmp:/nonexistent\n' >"$2/etc/passwd"
  printf 'root:x:0:\nnonroot:x:65532:\n' >"$2/etc/group"
  [[ ! -d $1 ]] || return 0
  install -m 755 "$1" "$2/app"
  shared_libraries "$1" | while read -r library; do
    # Debian's /lib is a link to /usr/lib; the image has plain folders at the paths that the loader uses.
    install -D -m 755 "$library" "$2$library"
  done
}

# digest_of_inputs NAME ROOTFS: hashes everything that the image is built from.
digest_of_inputs() {
  {
    printf '%s\n' "$1"
    cat "$KIND_DIR/Containerfile" "${BASH_SOURCE[0]}"
    cd "$2" && find . -type f -print0 | sort -z | xargs -0 sha256sum
  } | sha256sum
}

build_with_docker() { # build_with_docker NAME CONTEXT OUT
  docker build --quiet --tag "$1" --file "$KIND_DIR/Containerfile" "$2" >/dev/null
  docker save --output "$3" "$1"
}

# The storage of buildah is in the work folder, which the caller removes. With a fixed timestamp the same inputs give the
# same archive.
build_with_buildah() {
  local storage=(--root "$2/storage" --runroot "$2/runroot" --storage-driver vfs)
  export TMPDIR=$2 BUILDAH_ISOLATION=chroot
  mkdir -p "$2/context"
  mv "$2/rootfs" "$2/context/"
  buildah "${storage[@]}" bud --quiet --isolation chroot --timestamp 0 --tag "$1" --file "$KIND_DIR/Containerfile" \
    "$2/context" >/dev/null
  buildah "${storage[@]}" push --quiet "$1" "docker-archive:$3:$1"
}
