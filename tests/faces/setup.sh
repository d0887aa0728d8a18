#!/usr/bin/env bash
# Installs transformers, diffusers, peft and accelerate (300 MB) into a virtual environment on top of that of the tests
# (setup/venv.sh) and prints its Python interpreter, as the only line on stdout.       usage: python=$(bash tests/faces/setup.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
below=$(bash "$here/../../setup/setup.sh" test)
BELOW=$("$below" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
export BELOW
bash "$here/../../setup/venv.sh" faces "$(cat "$here/packages.python") $below" --no-deps -r "$here/packages.python"
