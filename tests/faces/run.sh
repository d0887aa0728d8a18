#!/usr/bin/env bash
# Tests programs as they are, with the real libraries.       usage: bash tests/faces/run.sh [PYTEST ARGUMENT ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(bash tests/faces/setup.sh)
unset TENSORCAST_SOCKET PYTHONDONTWRITEBYTECODE
PYTHONPATH=$PWD/build/python "$python" -m pytest -q -p no:cacheprovider tests/faces "$@"
