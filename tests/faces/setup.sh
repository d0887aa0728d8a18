#!/usr/bin/env bash
# Installs transformers, diffusers, peft and accelerate (300 MB) into a virtual environment on top of that of the tests, kept
# between runs and shared by clones, and prints its Python interpreter, as the only line on stdout.
#     usage: python=$(bash tests/faces/setup.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
below=$(bash "$here/../../setup/setup.sh" test)
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/tensorcast
venv=$cache/python-faces-$( (cat "$here/packages.python"; echo "$below") | sha256sum | cut -c1-12)
mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9 # two clones may be setting up at once
if [ ! -e "$venv/complete" ]; then
  echo "setup: installing into $venv" >&2
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  "$below" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' >"$site/tests.pth"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --compile -r "$here/packages.python" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python"
