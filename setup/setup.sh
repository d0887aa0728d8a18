#!/usr/bin/env bash
# Installs what is missing for a kind of work and prints the Python interpreter to use, as its only line on stdout.
#
#     python=$(bash setup/setup.sh)          what building and the quickstart need
#     python=$(bash setup/setup.sh test)     ... and the tests; also: bench, booted, deb, fuzz, jax, lint, stores, wheel
#     bash setup/setup.sh test debian        the Debian packages alone
#
# Debian packages come through apt-get (as root, or through sudo), Python packages into a virtual environment (venv.sh), named after
# the packages in it, so that clones share it and a changed list makes a new one. When nothing is missing nothing is fetched. TENSORCAST_TORCH=0 leaves torch (several GB) out.
set -euo pipefail
work=${1:-build}
here=$(cd "$(dirname "$0")" && pwd)

say() { echo "setup: $*" >&2; }

# wanted FILE: the packages for this work, comments removed, and what follows a colon.
wanted() {
  awk -v work="$work" '{ at = index($0, "#"); words = at ? substr($0, at + 1) : ""; name = at ? substr($0, 1, at - 1) : $0
    gsub(/[ \t]/, "", name); sub(/:.*/, "", words)
    if (name != "" && (!at || (" " words " ") ~ ("[ \t]" work "[ \t]"))) print name }' "$here/$1"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null && sudo "$@"; then return
  else say "have an administrator run: $*; then run this again, which needs no root"; exit 1
  fi
}

install_debian() {
  local missing=() package
  while read -r package; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done < <(wanted packages.debian)
  [ ${#missing[@]} -gt 0 ] || return 0
  exec 8>"${TMPDIR:-/tmp}/tensorcast-setup-$(id -u).lock"
  flock 8 # apt-get itself does not wait for another one
  say "installing Debian packages: ${missing[*]}"
  as_root apt-get update -qq >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
  exec 8>&-
}

install_python() {
  local list=()
  mapfile -t list < <(wanted packages.python | if [ "${TENSORCAST_TORCH:-1}" = 0 ]; then grep -v '^torch=='; else cat; fi)
  bash "$here/venv.sh" "$work" "${list[*]}" "${list[@]}"
}

install_debian
[ "${2:-}" = debian ] || install_python
