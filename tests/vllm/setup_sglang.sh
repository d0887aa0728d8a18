#!/usr/bin/env bash
# Installs what imports SGLang's loader classes (200 MB) into a folder of its own, kept between runs and shared by clones, and prints
# it, as the only line on stdout.       usage: folder=$(bash tests/vllm/setup_sglang.sh PYTHON)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$1
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/tensorcast
folder=$cache/python-sglang-$( (cat "$here/packages.sglang"; "$python" --version) | sha256sum | cut -c1-12)
mkdir -p "$cache"
exec 9>"$folder.lock"
flock 9 # two clones may be setting up at once
if [ ! -e "$folder/complete" ]; then
  echo "setup: installing SGLang into $folder" >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --compile --target "$folder" -r "$here/packages.sglang" >&2
  touch "$folder/complete"
fi
echo "$folder"
