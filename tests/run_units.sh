#!/usr/bin/env bash
# Runs every built unit, property, golden and fault test and replays the fuzz corpora, several at a time; prints the runners'
# closing lines, and all that a program said that failed.
# usage: run_units.sh BUILD_DIR       without the programs in $LEFT_OUT
# Where BUILD_DIR/tests/note_threads.so is, BUILD_DIR/tests/no_threads names the programs that passed without a thread.
set -u
build=${1:-build}
results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT
export results
cp "$build/tests/note_threads.so" "$results" 2>/dev/null
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=tests/tsan.supp atexit_sleep_ms=100 ${TSAN_OPTIONS:-}"

run() { # PROGRAM: leaves what it said in $results/PROGRAM.passed or .failed
  local name=${1##*/} result=$results/${1//\//.}
  case $name in fuzz_*) set -- "$1" "tests/fuzz/corpus/${name#fuzz_}" ;; esac
  local start=${EPOCHREALTIME/./} code=0
  local preload=$results/note_threads.so # a path without spaces
  [ -e "$preload" ] || preload=
  THREADS_FILE=$result.threads LD_PRELOAD=$preload timeout 600 "$@" >"$result" 2>&1 || code=$?
  echo "$(((${EPOCHREALTIME/./} - start) / 1000)) ms $name" >"$result.took"
  if [ $code != 0 ]; then
    { cat "$result"; echo "FAILED: $1"; } >"$result.failed"
  else
    mv "$result" "$result.passed"
  fi
}
export -f run

programs=$(find "$build/tests" -type f -perm -u+x \( -name 'test_*' -o -path '*/fuzz/fuzz_*' \) | sort |
  while read -r program; do
    name=${program#"$build/tests/"}
    case " ${LEFT_OUT:-} " in *" $name "*) continue ;; esac
    [ ! -e "tests/$name.c" ] || echo "$program" # not what was renamed
  done)
at_once=$(nproc)
case $build in *asan | *tsan) ;; *) at_once=$((2 * at_once)) ;; esac # many wait; under a sanitizer they compute
xargs -r -d '\n' -P "$at_once" -I{} bash -c 'run "$1"' run {} <<<"$programs"
grep -aHE '^\[  PASSED  \]' "$results"/*.passed | sed -E 's|^[^:]*\.(test_[^.]*)\.passed:|\1: |'
tail -qn 1 "$results"/*.fuzz_*.passed 2>/dev/null
cat "$results"/*.failed 2>/dev/null
if [ -e "$results/note_threads.so" ]; then
  while read -r program; do
    result=$results/${program//\//.}
    if [ -e "$result.passed" ] && [ ! -e "$result.threads" ]; then echo "${program#"$build/tests/"}"; fi
  done <<<"$programs" >"$build/tests/no_threads"
fi
left=$(wc -w <<<"${LEFT_OUT:-}")
[ "$left" = 0 ] || echo "programs without threads: $left left out"
echo "slowest: $(sort -rn "$results"/*.took | head -n 5 | paste -sd, | sed 's/,/, /g')"
ran=$(grep -c . <<<"$programs")
passed=$(find "$results" -name '*.passed' | wc -l)
echo "programs: $passed passed, $((ran - passed)) failed"
[ "$passed" = "$ran" ] && [ "$ran" -gt 0 ]
