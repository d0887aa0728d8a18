#!/usr/bin/env bash
# Coverage of the unit tests and the end-to-end tests together, by folder, and by file in BUILD/files.txt.
# usage: coverage.sh BUILD        A process that is killed leaves no counts behind, so a little more ran than is printed.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1 failed=0
python=$(bash setup/setup.sh test) || exit 1
make coverage-units "B=$(dirname "$build")" >"$build.log" 2>&1 || { tail -20 "$build.log"; exit 1; }
make "B=$(dirname "$build")" coverage-all >>"$build.log" 2>&1 || { tail -20 "$build.log"; exit 1; }
# other users' daemons cannot write counts
TENSORCAST_BUILD=$build PYTHONPATH=build/python "$python" -m pytest -q -n "$(nproc)" --dist loadfile -m "not plain and not alone" \
  --ignore tests/e2e/test_users.py --ignore tests/e2e/test_users_files.py --ignore tests/e2e/test_users_stores.py \
  tests/e2e || failed=1
python3 tests/coverage.py "$build" --files >"$build/files.txt"
python3 tests/coverage.py "$build"
exit $failed
