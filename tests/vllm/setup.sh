#!/usr/bin/env bash
# Installs a real vLLM for CPUs (6 GB) into a virtual environment of its own, kept between runs and shared by clones, and
# prints its Python interpreter, as the only line on stdout.       usage: python=$(bash tests/vllm/setup.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
interpreter=/usr/bin/python3
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/tensorcast
venv=$cache/python-vllm-$( (cat "$here/packages.python"; "$interpreter" --version) | sha256sum | cut -c1-12)
mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9 # two clones may be setting up at once
if [ ! -e "$venv/complete" ]; then
  echo "setup: installing vLLM into $venv" >&2
  rm -rf "$venv"
  "$interpreter" -m venv "$venv"
  # compiled while installing: a process that may not write bytecode would compile all of vLLM at each start
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --compile -r "$here/packages.python" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python"
