#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.       usage: bash tests/run.sh [STAGE ...]
#
# A stage prints its runners' closing lines and how long it took; the whole output is in build/test-logs/STAGE. All stages
# run even when one fails, except that nothing is tested when the build fails. Exit 0 only when every stage passed.
# A real vLLM (6 GB, kept between runs) is installed while the first stages run.
# A skipped test is listed with its reason and counted as skipped. TENSORCAST_TORCH=0 leaves torch and vLLM out.
set -u
cd "$(dirname "$0")/.." || exit 1
logs=build/test-logs
mkdir -p "$logs"
unset TENSORCAST_SOCKET TENSORCAST_BUILD
export PYTHONDONTWRITEBYTECODE=1
jobs=$(nproc)
failed=()

# Lines with which test runners close, and what was skipped and why.
closing() {
  grep -aE '^(SKIPPED|(=+ )?([0-9]+ [a-z]+(, )?|no tests ran)+ in [0-9.]+s|programs: |layers: |limits: |chaos: |.*\[  (PASSED|FAILED)  \]|FAILED)' "$1" |
    sed -E 's/^=+ (.*[^ ]) =+$/\1/' || true
}

stage() {
  local name=$1 start=$SECONDS code=0
  shift
  "$@" >"$logs/$name" 2>&1 || code=$?
  closing "$logs/$name"
  if [ "$code" = 0 ]; then
    echo "== $name: passed in $((SECONDS - start)) s"
  else
    tail -n "${TAIL:-60}" "$logs/$name"
    echo "== $name: FAILED (exit $code) in $((SECONDS - start)) s, see $logs/$name"
    failed+=("$name")
  fi
  return "$code"
}

setup() { bash setup/setup.sh test >build/test-python; }
python() { PYTHONPATH=build/python "$(cat build/test-python)" "$@"; }
build() { make -j"$jobs" all; }

# The client as a user installs it, into a folder of this clone, built in a copy so that the source tree stays clean.
client() {
  local copy
  copy=$(mktemp -d) || return 1
  cp -r client/python "$copy/" && rm -rf build/python &&
    python -m pip install --quiet --no-deps --no-build-isolation --target build/python "$copy/python"
  local code=$?
  rm -rf "$copy"
  return $code
}

check() { make -j"$jobs" check; }
numpy() { python -m pytest -q tests/property; }
rules() { make layers && make limits && make -s headers; }
# What measures memory or time runs alone afterwards.
e2e() { python -m pytest -q --durations=5 -n "$jobs" --dist loadfile -m "not plain" tests/e2e &&
  python -m pytest -q --durations=5 -m plain tests/e2e; }
python_tests() { python -m pytest -q --durations=5 tests/python; }
stores() { # the fake against the official clients, and real servers; these need packages of their own
  local interpreter
  interpreter=$(bash setup/setup.sh stores) && PYTHONPATH=build/python "$interpreter" -m pytest -q --durations=5 -m "not long" tests/stores
}
jax_tests() { "$(bash setup/setup.sh jax)" -m pytest -q -p no:cacheprovider tests/jax; }
vllm_plan() { python -m pytest -q -p no:cacheprovider --ignore=tests/vllm/real tests/vllm; }
vllm() { bash tests/vllm/run.sh --durations=5; }
asan() { make -j"$jobs" asan; }
tsan() { make -j"$jobs" tsan; }
store_faults="many_faults or remainder or dies or told_to_stop or two_connections" # of the stores, also under the sanitizers
sanitized_e2e() { # BUILD FILE ...
  export TENSORCAST_BUILD=$1
  shift
  python -m pytest -q -n "$jobs" --dist loadfile "$@" && python -m pytest -q -n "$jobs" -k "$store_faults" tests/e2e/test_store_faults.py &&
    python tests/chaos/chaos.py 10
}
asan_e2e() (sanitized_e2e build/asan tests/e2e/test_{equality,crashes,crowds,faults,group_failures,lifecycle,sidecars}.py)
tsan_e2e() (sanitized_e2e build/tsan tests/e2e/test_{crashes,crowds}.py)

# Where the machine has no CUDA, GPU memory is built and tested with the headers and libraries that come with torch.
use_packages() { VIRTUAL_ENV=$(dirname "$(dirname "$(cat build/test-python)")") && export VIRTUAL_ENV; }

every="rules check numpy client python_tests jax_tests vllm_plan e2e stores asan asan_e2e tsan tsan_e2e"
[ "${TENSORCAST_TORCH:-1}" = 0 ] || every+=" vllm"
wanted=${*:-$every}
if ! { stage setup setup && use_packages && stage build build; }; then exit 1; fi
trap 'kill $(jobs -p) 2>/dev/null' EXIT
case " $wanted " in *" vllm "*) nice -n 19 bash tests/vllm/setup.sh >"$logs/vllm_setup" 2>&1 & ;; esac # its stage waits for it
for name in $wanted; do stage "$name" "$name"; done
echo "all stages in $SECONDS s"
[ ${#failed[@]} = 0 ] || { echo "failed stages: ${failed[*]}"; exit 1; }
