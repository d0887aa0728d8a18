#!/usr/bin/env bash
# Installs what imports SGLang's loader classes (200 MB) into a virtual environment of its own (setup/venv.sh), and prints the folder
# of its packages, as the only line on stdout.       usage: folder=$(bash tests/vllm/setup_sglang.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$(bash "$here/../../setup/venv.sh" sglang "$(cat "$here/packages.sglang")" --no-deps -r "$here/packages.sglang")
"$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'
