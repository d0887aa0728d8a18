#!/usr/bin/env bash
# Tests the loader in a real vLLM on this machine's CPU.       usage: bash tests/vllm/run.sh [--all] [PYTEST ARGUMENT ...]
#
# Installs vLLM when it is missing (see setup.sh), builds the daemon, installs both Python packages as a user would, and
# runs tests/vllm/real: every parameter against vLLM's default loader, and the tokens of one engine. --all adds the tokens
# of the other models, about a minute each. A vLLM that cannot be installed or started is a failure, never a skip.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-}" != --all ] || { export TENSORCAST_VLLM_ALL=1; shift; }
bash setup/setup.sh test >/dev/null
python=$(bash tests/vllm/setup.sh)
TENSORCAST_SGLANG=$(bash tests/vllm/setup_sglang.sh)
export TENSORCAST_SGLANG
make -j"$(nproc)" all >/dev/null
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r client/python client/vllm client/sglang "$copy/"
rm -rf "$copy"/*/build # of an older installation: newer than its sources in a copy
rm -rf build/python-vllm
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target build/python-vllm \
  "$copy/python" "$copy/vllm" "$copy/sglang"
unset TENSORCAST_SOCKET PYTHONDONTWRITEBYTECODE
PYTHONPATH=$PWD/build/python-vllm "$python" -m pytest -q -p no:cacheprovider tests/vllm/real "$@"
