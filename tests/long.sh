#!/usr/bin/env bash
# What takes hours: every fuzz target for an hour, chaos and random messages and hosts under both sanitizers, 20000 random layouts with
# variants, and 1000 crashes each of activation stores: uploads whose daemon is killed, writers and daemons that are killed, at random
# and at every step, and a machine without power.
# usage: long.sh [FUZZ_SECONDS] [CHAOS_SECONDS]        default: 3600 for each target, 1800 for each sanitizer
set -u
cd "$(dirname "$0")/.." || exit 1
fuzz_seconds=${1:-3600} chaos_seconds=${2:-1800} failed=0
python=$(bash setup/setup.sh test) || exit 1
for sanitizer in asan tsan; do
  make -j"$(nproc)" "$sanitizer"-all >"build/long-$sanitizer.log" 2>&1 || { tail -20 "build/long-$sanitizer.log"; exit 1; }
  TENSORCAST_BUILD=build/$sanitizer "$python" tests/chaos/chaos.py "$chaos_seconds" "$RANDOM" || failed=1
  TENSORCAST_BUILD=build/$sanitizer "$python" tests/chaos/messages.py "$chaos_seconds" "$RANDOM" || failed=1
  TENSORCAST_BUILD=build/$sanitizer "$python" tests/chaos/hosts.py "$chaos_seconds" "$RANDOM" || failed=1
done
CHAIN_CASES=20000 PYTHONPATH=client/python "$python" -m pytest -q --timeout 36000 tests/e2e/test_chain.py \
  tests/e2e/test_chain_ways.py || failed=1
UPLOAD_CRASHES=1000 PYTHONPATH=client/python "$python" -m pytest -q --timeout 36000 tests/e2e/test_activation_uploads.py -k exactly_once || failed=1
ACTIVATION_STEPS=40 PYTHONPATH=client/python "$python" -m pytest -q --timeout 36000 tests/e2e/test_activation_steps.py || failed=1
TENSORCAST_POWER_CUTS=1000 PYTHONPATH=client/python "$python" -m pytest -q --timeout 36000 tests/e2e/test_power_cuts.py || failed=1
bash tests/fuzz/run.sh "$fuzz_seconds" || failed=1
exit $failed
