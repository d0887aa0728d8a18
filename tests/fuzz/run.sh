#!/usr/bin/env bash
# Runs each fuzz target for so many seconds, starting from its corpus in tests/fuzz/corpus/. New inputs are kept outside the
# tree; a crash, a leak or a hang fails, and its input is kept and named.
# usage: run.sh SECONDS [TARGET ...]        default: all targets; a dictionary tests/fuzz/NAME.dict is used when there
set -u
seconds=${1:?usage: run.sh SECONDS [TARGET ...]}; shift
cd "$(dirname "$0")/../.." || exit 1
if [ $# -eq 0 ]; then for file in tests/fuzz/fuzz_*.c; do name=${file##*/fuzz_}; set -- "$@" "${name%.c}"; done; fi
bash tests/fuzz/build.sh build/fuzz "$@" >/tmp/fuzz-build.$$.log 2>&1 || { tail -20 /tmp/fuzz-build.$$.log; exit 1; }

# What runs of the files that a target says it reaches ("Reaches url.c and ..." in its head), by its corpus and what was found.
replays=build/fuzz-coverage
reached() { # NAME FOLDER ...
  local name=$1 folder
  local -a files
  shift
  mapfile -t files < <(sed '/\*\//q' "tests/fuzz/fuzz_$name.c" | tr '\n' ' ' | grep -oE 'Reaches.*' | grep -oE '[a-z0-9_]+\.c\b')
  [ ${#files[@]} -gt 0 ] || return 0
  find "$replays" -name '*.gcda' -delete
  for folder in "$@"; do [ -z "$(ls -A "$folder")" ] || "$replays/tests/fuzz/fuzz_$name" "$folder" >/dev/null 2>&1; done
  python3 tests/coverage.py "$replays" --only "${files[@]}" | sed -nE "s/ +/ /g; s/^coverage: all (.*)/, \1 of ${files[*]}/p"
}
make -j"$(nproc)" coverage-fuzz >/tmp/fuzz-build.$$.log 2>&1 || { tail -20 /tmp/fuzz-build.$$.log; exit 1; }
rm -f /tmp/fuzz-build.$$.log
kept=$(mktemp -d "${TMPDIR:-/tmp}/fuzz.XXXXXX")
failed=0
for name in "$@"; do
  mkdir -p "$kept/$name"
  dict=(); [ -f "tests/fuzz/$name.dict" ] && dict=("-dict=tests/fuzz/$name.dict")
  if "build/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "${dict[@]}" \
      -artifact_prefix="$kept/$name-" "$kept/$name" "tests/fuzz/corpus/$name" >"$kept/$name.log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$kept/$name.log")
    edges=$(grep -o 'cov: [0-9]*' "$kept/$name.log" | tail -1 | tr -dc 0-9)
    from=$(grep -m1 -o 'INITED cov: [0-9]*' "$kept/$name.log" | tr -dc 0-9)
    echo "fuzz $name: $runs runs in $seconds s, $edges edges covered ($from by the corpus alone), $(find "$kept/$name" -type f | wc -l) new inputs in $kept/$name$(reached "$name" "tests/fuzz/corpus/$name" "$kept/$name")"
  else
    failed=$((failed + 1))
    tail -40 "$kept/$name.log"
    echo "fuzz $name: FAILED; log $kept/$name.log, input in $kept/$name-*"
  fi
done
echo "fuzz targets: $(($# - failed)) passed, $failed failed"
[ "$failed" = 0 ]
