#!/usr/bin/env bash
# How long a real vLLM engine of two ranks takes to load its weights, by load format, and how long the loader's tracing takes for
# a model of 70B; `make bench BENCH=--vllm` calls it. As root, on a quiet machine, 12 GB of memory.
#     usage: bash tests/vllm/bench.sh [BUILD_DIR] [--size 2GiB] [--rounds 3] [--quick] [--write docs/performance-tables.md] ...
#
# Installs vLLM when it is missing (see setup.sh) and the Run:ai streamer beside it, builds, installs both Python packages. The
# table goes into docs/performance-tables.md unless --quick or --write says otherwise.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build
case ${1:-} in '' | --*) ;; *) build=$1 && shift ;; esac
bash setup/setup.sh bench >/dev/null
python=$(bash tests/vllm/setup.sh)
make -j"$(nproc)" B="$build" all "$build/bench/native" >/dev/null
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r client/python client/vllm "$copy/"
rm -rf "$copy"/*/build # of an older installation: newer than its sources in a copy
rm -rf "$build/python-vllm"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target "$build/python-vllm" \
  "$copy/python" "$copy/vllm"
streamer=$(sed -n 's/^\(runai-model-streamer==[0-9.]*\).*/\1/p' setup/packages.python)
peers=$build/python-vllm-bench/$streamer
[ -e "$peers/complete" ] || {
  rm -rf "$build/python-vllm-bench"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$peers" "$streamer" humanize==4.17.0
  touch "$peers/complete"
}
case " $* " in
  *" --write "* | *" --quick "* | *" --help "*) ;;
  *) set -- "$@" --write docs/performance-tables.md ;;
esac
unset TENSORCAST_SOCKET PYTHONDONTWRITEBYTECODE
PYTHONPATH=$(realpath "$build/python-vllm"):$(realpath "$peers")
export PYTHONPATH
"$python" tests/vllm/bench.py "$build" "$@"
