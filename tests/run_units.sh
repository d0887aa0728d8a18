#!/usr/bin/env bash
# Runs every built unit, property, golden and fault test and replays the fuzz corpora; prints the runners' closing lines.
# usage: run_units.sh BUILD_DIR
set -u
build=${1:-build}
failed=0 ran=0
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 ${TSAN_OPTIONS:-}"
for test in $(find "$build/tests" -type f -name 'test_*' -perm -u+x | sort); do
  ran=$((ran + 1))
  if ! output=$(timeout 600 "$test" 2>&1); then
    failed=$((failed + 1)); echo "$output"; echo "FAILED: $test"
  else
    echo "$output" | grep -E '^\[  PASSED  \]' | sed "s|^|$(basename "$test"): |"
  fi
done
for replay in $(find "$build/tests/fuzz" -type f -name 'fuzz_*' -perm -u+x 2>/dev/null | sort); do
  ran=$((ran + 1))
  corpus=tests/fuzz/corpus/$(basename "$replay" | sed 's/^fuzz_//')
  if ! output=$(timeout 600 "$replay" "$corpus" 2>&1); then failed=$((failed + 1)); echo "$output"; echo "FAILED: $replay"; else echo "$output" | tail -1; fi
done
echo "programs: $((ran - failed)) passed, $failed failed"
[ "$failed" = 0 ] && [ "$ran" -gt 0 ]
