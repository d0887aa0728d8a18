#!/usr/bin/env bash
# The longer tests of object stores: those of the stage `stores`, and Swift and Ceph's gateway.    usage: bash tests/stores/run.sh [pytest options]
#
# Installs what is missing (some 140 Debian packages), builds, and starts every server on loopback, on free ports, below a
# temporary folder; all are ended again. Needs root for the installation only.
set -euo pipefail
cd "$(dirname "$0")/../.."
bash setup/setup.sh stores_long >/dev/null
python=$(bash setup/setup.sh stores)
make -j"$(nproc)" all
exec "$python" -m pytest -q --durations=10 "$@" tests/stores
