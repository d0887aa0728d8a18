#!/usr/bin/env bash
# Makes the wheel tensorcast_daemon of the programs in BUILD_DIR/wheel/bin, and repairs it: auditwheel puts in the libraries that no system
# is sure to have, and the name tells the oldest glibc.       usage: wheel.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")/wheel plugin=$(realpath -m "$1")/plugins/tensorcast-cuda.so version=$(cat VERSION)
python=$(bash setup/setup.sh wheel)
PATH=$(dirname "$python"):$PATH
if git ls-files --error-unmatch VERSION >/dev/null 2>&1; then version+=+g$(git rev-parse --short=8 HEAD); fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r client/daemon/. "$work"
package=$work/tensorcast_daemon
sed -i "s/^version = .*/version = \"$version\"/" "$work/pyproject.toml"
mkdir -p "$package/bin/plugins"
install -s -m 755 -t "$package/bin" "$out/bin/tensorcastd" "$out/bin/tensorcast"
if [ -e "$plugin" ]; then # CUDA and NCCL are those of torch in the same environment, else the system's
  install -s -m 755 -t "$package/bin/plugins" "$plugin"
  patchelf --set-rpath "\$ORIGIN/../../../nvidia/cu13/lib:\$ORIGIN/../../../nvidia/cuda_runtime/lib:\$ORIGIN/../../../nvidia/nccl/lib" \
    "$package/bin/plugins/tensorcast-cuda.so"
fi
python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$work/dist" "$work"
rm -f "$out"/*.whl
auditwheel repair --exclude 'libcudart.so.*' --wheel-dir "$out" "$work"/dist/*.whl
