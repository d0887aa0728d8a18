#!/usr/bin/env bash
# Installs a real vLLM for CPUs (6 GB) into a virtual environment of its own (setup/venv.sh) and prints its Python interpreter, as the
# only line on stdout.       usage: python=$(bash tests/vllm/setup.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/../../setup/venv.sh" vllm "$(cat "$here/packages.python")" --no-deps -r "$here/packages.python"
