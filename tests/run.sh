#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.       usage: bash tests/run.sh [STAGE ...] [PYTEST OPTION ...]
#
#     bash tests/run.sh                    everything
#     bash tests/run.sh quick              in under two minutes from a built tree; says what it leaves out
#     bash tests/run.sh check e2e          these stages, one after the other
#     bash tests/run.sh e2e -k fairness    options go to the stages that run pytest
#
# A stage prints its runners' closing lines and how long it took; the whole output is in build/test-logs/STAGE. All stages
# run even when one fails, except that nothing is tested when the build fails. Exit 0 only when every stage passed.
#
# Everything runs in lanes at once. The first runs the end-to-end tests, which take longest and mostly wait; the others have the low
# priority NICE. Two compute: unit tests, with counters and then under ThreadSanitizer, and under AddressSanitizer. One takes what is
# left of the cores for linters and rules, which no busy machine can make fail; one begins with the tests of stores, as they wait
# for more than they compute. The rest is done by whichever is free. What measures time runs alone at the end. (A real vLLM has 6 GB
# of packages, kept between runs.) A skipped test is listed with its reason. TENSORCAST_TORCH=0 leaves torch and vLLM out.
set -u
cd "$(dirname "$0")/.." || exit 1
logs=build/test-logs
mkdir -p "$logs"
rm -rf "$logs"/*.{passed,failed} "$logs"/.taken.*
unset TENSORCAST_SOCKET TENSORCAST_BUILD PYTHONDONTWRITEBYTECODE # what is compiled is kept, see setup/venv.sh
export PYTEST_ADDOPTS="-o tmp_path_retention_policy=failed" # else each test's files stay until all have ended: 15 GB
jobs=$(nproc)
NICE=5 groups=()
stages=() options=()
while [ $# -gt 0 ] && [ "${1:0:1}" != - ]; do stages+=("$1"); shift; done
options=("$@")

# Lines with which test runners close, and what was skipped and why.
closing() {
  grep -aE '^(SKIPPED|(=+ )?([0-9]+ [a-z]+(, )?|no tests ran)+ in [0-9.]+s|programs: |slowest: |layers: |limits: |house rules: |lint: |coverage: |chaos: |.*\[  FAILED  \]|FAILED)' "$1" |
    sed -E 's/^=+ (.*[^ ]) =+$/\1/' || true
}

# Prints all of a stage at once: the lanes share the terminal.
stage() {
  local name=$1 start=$SECONDS code=0 end TIMEFORMAT='%0U %0S'
  shift
  # in a shell of its own: this one also counts a lane that ends meanwhile
  (time "$@" >"$logs/$name" 2>&1) 2>"$logs/.cpu_s.$name" || code=$?
  local cpu_s=$(($(sed 's/ / + /' "$logs/.cpu_s.$name")))
  if [ "$code" = 0 ]; then end=passed; else end=failed; fi
  {
    flock 8
    closing "$logs/$name"
    if [ "$code" = 0 ]; then echo "== $name: passed in $((SECONDS - start)) s, $cpu_s s of CPU"
    else
      tail -n "${TAIL:-60}" "$logs/$name"
      echo "== $name: FAILED (exit $code) in $((SECONDS - start)) s, see $logs/$name"
    fi
  } 8>"$logs/.terminal"
  touch "$logs/$name.$end"
  return "$code"
}

lane() { local name; for name in "$@"; do stage "$name" "$name"; done; }
has_ended() { [ -e "$logs/$1.passed" ] || [ -e "$logs/$1.failed" ]; }
after() { until has_ended "$1"; do sleep 0.5; done; } # a stage of the other lane that builds what this one needs

# Starts a command as a process group of its own, which ends with this script, at low priority; its id is in $!.
background() {
  set -m
  (renice -n "$NICE" -p "$BASHPID" >/dev/null; "$@") &
  set +m
  groups+=("$!")
}
end_groups() { local group; for group in "${groups[@]}"; do kill -- "-$group" 2>/dev/null; done; }
trap end_groups EXIT

setup() { bash setup/setup.sh test debian; }
environment() { bash setup/setup.sh test >build/test-python; }
python() { PYTHONPATH=build/python "$(cat build/test-python)" "$@"; }
tests() { python -m pytest -q --durations=5 "$@" "${options[@]}" || { code=$?; [ "$code" = 5 ] && [ ${#options[@]} -gt 0 ]; }; }
compile() { make -j"$jobs" build/tensorcastd build/tensorcast build/libtensorcast.so; } # what needs no Python package
build() { make -j"$jobs" all; }

# The client as a user installs it, into a folder of this clone, built in a copy so that the source tree stays clean.
client() {
  local copy
  copy=$(mktemp -d) || return 1
  cp -r client/python "$copy/" && rm -rf "$copy/python/build" build/python && # what an older installation left is newer there
    python -m pip install --quiet --no-deps --no-build-isolation --target build/python "$copy/python"
  local code=$?
  rm -rf "$copy"
  return $code
}

check() { make -j"$jobs" check; }
coverage() { make -j"$jobs" coverage-units; } # in a run of everything, it is check
numpy() { make build/tests/cast_tool build/tests/variant_tool && tests tests/property; }
rules() { make -s -k layers limits house headers; }
lint() { make lint; }
e2e() { # with options: of all of them, so that -k finds what it names. One more at once than there are cores, as most wait
  if [ ${#options[@]} -gt 0 ]; then tests tests/e2e
  else tests -n $((jobs + 1)) --dist loadfile --no-loadscope-reorder -m "not alone" tests/e2e; fi
}
alone() { # what measures time
  local files
  mapfile -t files < <(grep -lF pytest.mark.alone tests/e2e/*.py)
  tests -m alone "${files[@]}"
}
quick_e2e() { tests -n "$jobs" --dist loadfile -m "not plain and not alone" tests/e2e/test_{equality,faults,groups,lifecycle,status,sidecars}.py; }
python_tests() { tests tests/python; }
stores() { # the fake against the official clients, and real servers; these need packages of their own
  local interpreter
  interpreter=$(bash setup/setup.sh stores) &&
    PYTHONPATH=build/python "$interpreter" -m pytest -q --durations=5 -m "not long" tests/stores "${options[@]}"
}
booted() { bash tests/booted/run.sh; } # the units, under a real systemd
jax_tests() { "$(bash setup/setup.sh jax)" -m pytest -q -p no:cacheprovider tests/jax "${options[@]}"; }
vllm_plan() { tests -p no:cacheprovider --ignore=tests/vllm/real tests/vllm; }
vllm() { bash tests/vllm/run.sh --durations=5 "${options[@]}"; }
faces() { bash tests/faces/run.sh --durations=5 "${options[@]}"; }
asan() { make -j"$jobs" asan; }
tsan() { make -j"$jobs" tsan; }
store_faults="many_faults or remainder or dies or told_to_stop or two_connections" # of the stores, also under the sanitizers
sanitized_e2e() { # BUILD FILE ...
  export TENSORCAST_BUILD=$1
  shift
  tests -n "$jobs" --dist loadfile -k "not test_store_faults or $store_faults" "$@" tests/e2e/test_store_faults.py &&
    python tests/chaos/chaos.py 5 && python tests/chaos/hosts.py 10
}
asan_e2e() (sanitized_e2e build/asan tests/e2e/test_{equality,crashes,crowds,faults,group_failures,lifecycle,sidecars}.py)
tsan_e2e() (sanitized_e2e build/tsan tests/e2e/test_{crashes,crowds}.py)

# Where the machine has no CUDA, GPU memory is built and tested with the headers and libraries that come with torch.
use_packages() { VIRTUAL_ENV=$(dirname "$(dirname "$(cat build/test-python)")") && export VIRTUAL_ENV; }

installed() { # what stages install that come later
  for work in stores jax lint; do bash setup/setup.sh "$work"; done
  bash setup/setup.sh booted debian
  [ "${TENSORCAST_TORCH:-1}" = 0 ] || { bash tests/vllm/setup.sh; bash tests/faces/setup.sh; }
} >"$logs/more_setup" 2>&1

# What runs in whichever lane is free, in this order, and the stage of another lane that has to come first.
either=(asan_e2e:asan python_tests:client tsan_e2e:tsan vllm_plan:client jax_tests:client)
[ "${TENSORCAST_TORCH:-1}" = 0 ] || either=(vllm:client faces:client "${either[@]}")
either_lane() {
  local entry name is_over=no
  while [ "$is_over" = no ]; do
    is_over=yes
    for entry in "${either[@]}"; do
      name=${entry%%:*}
      if [ -z "$name" ] || [ -e "$logs/.taken.$name" ]; then continue; fi
      is_over=no
      if ! has_ended "${entry#*:}" || ! mkdir "$logs/.taken.$name" 2>/dev/null; then continue; fi
      lane "$name"
      continue 2
    done
    sleep 0.5
  done
}

threads_lane() { lane coverage tsan; either_lane; } # the first finds out what has threads
memory_lane() { lane asan; either_lane; }
rules_lane() { lane rules lint; } # what no clock hurts
waiting_lane() { after client; lane stores booted numpy; either_lane; }

everything() {
  local lane lanes=()
  background installed
  for lane in threads_lane memory_lane waiting_lane; do
    background "$lane"
    lanes+=("$!")
  done
  NICE=15 background rules_lane
  lanes+=("$!")
  lane client e2e
  either_lane
  wait "${lanes[@]}"
  lane alone
}

quick() {
  stage client client
  background lane python_tests numpy
  local second_lane=$!
  lane rules check quick_e2e vllm_plan
  wait "$second_lane"
  echo "quick leaves out: most end-to-end tests, sanitizers, chaos, real stores, jax, vllm, lint and coverage"
}

prepare() { # compiles while Python packages are installed
  stage setup setup || return 1
  background lane environment
  local environment=$!
  stage compile compile && wait "$environment" && use_packages && stage build build
}

prepare || exit 1
case "${stages[*]}" in
  "") everything ;;
  quick) quick ;;
  *)
    [ -e build/python ] || stage client client # most stages import it
    lane "${stages[@]}"
    ;;
esac
echo "all stages in $SECONDS s"
failed=$(cd "$logs" && ls -- *.failed 2>/dev/null | sed 's/\.failed$//' | xargs)
[ -z "$failed" ] || { echo "failed stages: $failed"; exit 1; }
