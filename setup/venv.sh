#!/usr/bin/env bash
# Makes a virtual environment of Debian's python3, or finds that of the same packages, and prints its interpreter,
# as the only line on stdout. It is kept between runs and shared by clones, in $XDG_CACHE_HOME/tensorcast.
#     usage: python=$(bash setup/venv.sh NAME KEY PIP_ARGUMENT...)
# KEY: what decides whether it is the same one; BELOW=FOLDER: packages of that folder are there, too.
#
# uv installs the packages: it takes a third of pip's processor time and has a file that two environments need on the disk once. It asks
# the index and trusts the certificates that pip is configured for; where it fails, pip does it. Python compiles a module when it is first
# imported: most of the 50,000 in these environments never are. Only where it may not keep that, all are compiled at once.
set -euo pipefail
name=$1 key=$2
shift 2
interpreter=/usr/bin/python3
uv_version=0.13.9

compile=--compile-bytecode
[ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || compile=--no-compile-bytecode

say() { echo "setup: $*" >&2; }

# A folder that this user may write to: the cache, or the clone itself where there is no home.
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/tensorcast
if ! mkdir -p "$cache" 2>/dev/null || [ ! -w "$cache" ]; then
  cache=$(cd "$(dirname "$0")/.." && pwd)/build
  mkdir -p "$cache"
fi

# pip_setting NAME: from its files and its environment.
pip_setting() { "$tools/bin/python" -m pip config list 2>/dev/null | sed -n "s/^[^=]*\.$1='\(.*\)'$/\1/p" | tail -n 1; }

# set_unless VARIABLE VALUE: a value that is set stays.
set_unless() { [ -z "$2" ] || [ -n "${!1:-}" ] || export "$1=$2"; }

find_uv() {
  tools=$cache/uv-$uv_version
  exec 8>"$tools.lock"
  flock 8
  if [ ! -e "$tools/complete" ]; then
    rm -rf "$tools"
    "$interpreter" -m venv "$tools" >&2
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version" >&2 || return 1
    touch "$tools/complete"
  fi
  exec 8>&-
  export UV_CACHE_DIR=$cache/uv-cache UV_NO_PROGRESS=1
  set_unless UV_DEFAULT_INDEX "$(pip_setting index-url)"
  set_unless UV_INDEX "$(pip_setting extra-index-url)"
  set_unless UV_FIND_LINKS "$(pip_setting find-links)"
  set_unless SSL_CERT_FILE "$(pip_setting cert)"
}

by_uv() {
  find_uv && "$tools/bin/uv" venv --quiet --seed --python "$interpreter" "$venv" >&2 &&
    "$tools/bin/uv" pip install --quiet "$compile" --python "$venv/bin/python" "$@" >&2
}

by_pip() {
  rm -rf "$venv"
  "$interpreter" -m venv "$venv" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${compile%-bytecode}" "$@" >&2
}

venv=$cache/python-$name-$( (echo "$key"; "$interpreter" --version) | sha256sum | cut -c1-12)
exec 9>"$venv.lock"
flock 9 # two clones may be setting up at once
if [ ! -e "$venv/complete" ] || [ ! -x "$venv/bin/python" ]; then # a folder of packages without one is of an older clone
  say "installing Python packages into $venv"
  rm -rf "$venv"
  by_uv "$@" || { say "uv could not, pip does"; by_pip "$@"; }
  if [ -n "${BELOW:-}" ]; then
    echo "$BELOW" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/below.pth"
  fi
  touch "$venv/complete"
fi
echo "$venv/bin/python"
