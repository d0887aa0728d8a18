#!/usr/bin/env bash
# Makes the Debian packages in BUILD_DIR/deb, with debian/rules in a copy of the tree.       usage: deb.sh BUILD_DIR
#
# Their version tells the time and the commit of a git clone, so that a later build is an upgrade. Where the machine has no CUDA, the
# plugin is built with the headers that come from PyPI; CUDA=0 leaves out its package.
set -euo pipefail
cd "$(dirname "$0")/.."
unset MAKEFLAGS # of a make above this script
out=$(realpath -m "$1")/deb version=$(cat VERSION) commit=
bash setup/setup.sh deb debian
if [ "${CUDA:-}" != 0 ] && [ -z "$(bash daemon/plugins/cuda/find_cuda.sh)" ]; then
  python=$(bash setup/setup.sh deb)
  VIRTUAL_ENV=$(dirname "$(dirname "$python")") && export VIRTUAL_ENV
fi
if git ls-files --error-unmatch VERSION >/dev/null 2>&1; then
  commit=$(git rev-parse --short=8 HEAD)
  version+=+git$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd).$commit
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) && export SOURCE_DATE_EPOCH
fi
mkdir -p "$out"
rm -rf "$out/source" "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
mkdir "$out/source"
tar -c --exclude=./build --exclude=./.git --exclude='*.egg-info' --exclude=__pycache__ . | tar -x -C "$out/source"
cd "$out/source"
sed -i "1s/(.*)/($version)/" debian/changelog
# a relative B: with CCACHE_BASEDIR ccache makes the paths in .d files relative, and make would not know absolute ones
B=../objects COMMIT=$commit DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc) ${DEB_BUILD_OPTIONS:-}" dpkg-buildpackage -b -nc -us -uc
rm -rf "$out/source"
