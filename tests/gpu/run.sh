#!/usr/bin/env bash
# T1 to T12 of docs/gpu.md on a machine with a GPU: a short table on standard output, everything else in $OUT (or
# BUILD/gpu-logs). A test that cannot run says why. Exit 0 when nothing failed.        usage: bash tests/gpu/run.sh [BUILD]
#
# Takes about three minutes, 5 GiB of /dev/shm (SIZE_MIB=4096 sets it) and of the GPU. Resets nothing and changes no setting of
# the device. PYTHON is an interpreter with torch, safetensors, numpy and grpcio (default: python3).
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${1:-build}") python=${PYTHON:-python3}
logs=${OUT:-$build/gpu-logs}
mkdir -p "$logs" "$build/tests/gpu"
scene=$(mktemp -d "${SCENE_PARENT:-/dev/shm}/tc-gpu-XXXXXX") || exit 1
tools=$(mktemp -d "$build/tests/gpu/tools-XXXXXX") || exit 1 # its own, and not in /dev/shm, which may be mounted noexec
failed=0 daemon='' passed=passed

row() { printf '%-4s %-9s %s\n' "$1" "${2/passed/$passed}" "$3"; [ "$2" != FAILED ] || failed=1; }
cleanup() { [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null; rm -rf "$scene" "$tools"; }
trap cleanup EXIT

skip_all() { for t in T1 T2 T3 T4 T5 T6 T7 T8 T9 T10 T11 T12; do row $t skipped "$1"; done; exit 0; }

# --- what is needed ---
read -r include cudart _ < <(bash daemon/plugins/cuda/find_cuda.sh -v 2>"$logs/find_cuda")
[ -n "${cudart:-}" ] || skip_all "$(cat "$logs/find_cuda")"
[ -e "$build/plugins/tensorcast-cuda.so" ] || skip_all "the plugin is not built: run make"
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$cudart")"
export LD_LIBRARY_PATH
copies=$tools/copies
gcc -O2 -std=c17 -D_GNU_SOURCE -isystem "$include" -o "$copies" tests/gpu/copies.c "$cudart" -lpthread -ldl 2>"$logs/compile" ||
  skip_all "tests/gpu/copies.c does not compile, see $logs/compile"
region=$tools/region
gcc -O2 -std=c17 -D_GNU_SOURCE -isystem "$include" -Iclient -o "$region" tests/gpu/region.c -L"$build" -ltensorcast \
  -Wl,-rpath,"$build" "$cudart" -ldl 2>"$logs/compile" || skip_all "tests/gpu/region.c does not compile, see $logs/compile"
if ! probe=$(timeout 120 "$copies" probe 2>"$logs/probe"); then skip_all "no GPU: $(tail -n 1 "$logs/probe")"; fi
if grep -q 'FAKE CUDA' "$logs/probe"; then
  passed=simulated
  echo "NOTE: this is the fake CUDA. Nothing below says anything about a GPU."
fi

# --- T1 ---
name=$( (nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "no nvidia-smi") 2>/dev/null | head -n 1)
echo "$(date -I), $name, kernel $(uname -r)"
row T1 passed "$probe"

# --- a checkpoint and a daemon ---
"$python" - "$scene/m.safetensors" "${SIZE_MIB:-4096}" <<'PY' || skip_all "no checkpoint could be written"
import json, os, struct, sys
size = int(sys.argv[2]) << 20
rows = max(1, size // 4 // 8192)
shapes = {f"w{i}": ("BF16", [rows, 4096], rows * 8192) for i in range(4)}
shapes["odd"] = ("U8", [12345], 12345)
header, at = {}, 0
for key, (dtype, shape, nbytes) in shapes.items():
    header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
    at += nbytes
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    while at:
        piece = min(at, 16 << 20)
        out.write(bytes(b & 0x7F for b in os.urandom(4096)) * (piece // 4096) + os.urandom(piece % 4096))
        at -= piece
PY
cat >"$scene/c.yaml" <<YAML
server: {socket_path: $scene/d.sock, state_dir: $scene/state}
memory: {host_budget: 64GiB, staging_budget: 128MiB}
sources: {disk: {trusted_roots: [$scene]}}
devices: {plugin_folder: $build/plugins}
YAML
export TENSORCAST_SOCKET=$scene/d.sock
tensorcast=$build/tensorcast model=disk:$scene/m.safetensors

start_daemon() {
  "$build/tensorcastd" --config "$scene/c.yaml" >>"$logs/daemon" 2>&1 &
  daemon=$!
  for _ in $(seq 200); do "$tensorcast" status --timeout 1s >/dev/null 2>&1 && return; sleep 0.1; done
  echo "the daemon does not start, see $logs/daemon"; exit 1
}
leases() { "$tensorcast" status --json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["leases"])'; }
wait_for_leases() { for _ in $(seq 100); do [ "$(leases)" = "$1" ] && return 0; sleep 0.1; done; return 1; }
free_bytes() { "$copies" free 2>/dev/null; }
start_daemon

# --- T2: one allocation, several clients in processes of their own, in any order of leaving ---
t2() {
  "$tensorcast" load "$model" --device cuda:0 --digest --quiet >"$logs/gpu.sums" || return 1
  "$tensorcast" load "$model" --standalone --digest --quiet >"$logs/host.sums" || return 1
  cmp "$logs/gpu.sums" "$logs/host.sums" || return 1
  local pids=()
  for _ in 1 2 3; do "$tensorcast" load "$model" --device cuda:0 --hold 60 --quiet & pids+=($!); done
  wait_for_leases 3 || return 1
  kill "${pids[1]}"; wait_for_leases 2 || return 1
  "$tensorcast" load "$model" --device cuda:0 --digest --quiet | cmp - "$logs/host.sums" || return 1
  kill "${pids[0]}" "${pids[2]}"; wait_for_leases 0
}
if t2 >"$logs/T2" 2>&1; then row T2 passed "several clients see the bytes of the file, whichever leaves first"; else row T2 FAILED "see $logs/T2"; fi

# --- T3: memory that a client owns; what becomes of it when the client dies is T4's ---
at_rest() { "$tensorcast" status --json | "$python" -c 'import json, sys; s = json.load(sys.stdin); sys.exit(s["leases"] + len(s["loads"]) > 0)'; }
t3() { timeout 120 "$region" "$model" cudaMalloc && timeout 120 "$region" "$model" cuMemCreate && at_rest; }
if t3 >"$logs/T3" 2>&1; then row T3 passed "by IPC handle and by descriptor, at an offset; wrong offers refused"; else row T3 FAILED "see $logs/T3"; fi

# --- T4: a client that dies leaves the others' memory ---
t4() {
  "$tensorcast" release --all >/dev/null
  local before after
  before=$(free_bytes)
  for delay in 0.05 0.2 0.5; do # in mid-load, and with the memory in hand
    "$tensorcast" load "$model" --device cuda:0 --hold 60 --quiet & local client=$!
    sleep $delay; kill -9 $client; wait_for_leases 0 || return 1
  done
  for delay in 0.3 0.6 1.2; do # with memory of its own being filled
    "$region" "$model" cudaMalloc & client=$!
    sleep $delay; kill -9 $client; wait $client
    timeout 120 "$region" "$model" cudaMalloc || return 1
  done
  "$tensorcast" load "$model" --device cuda:0 --digest --quiet | cmp - "$logs/host.sums" || return 1
  "$tensorcast" load "$model" --device cuda:0 --hold 30 --quiet & local holder=$!
  wait_for_leases 1 || return 1
  "$region" "$model" cudaMalloc & client=$!
  sleep 0.6
  kill -9 "$daemon"; wait "$daemon" 2>/dev/null
  wait $client # with an error, or done already, but not for ever
  kill -0 $holder || return 1 # a client outlives its daemon
  kill $holder; wait $holder 2>/dev/null
  start_daemon
  "$tensorcast" load "$model" --device cuda:0 --digest --quiet | cmp - "$logs/host.sums" || return 1
  "$tensorcast" release --all >/dev/null
  after=$(free_bytes)
  echo "free before $before, after $after"
  [ $((before - after)) -lt $((256 << 20)) ] # a context may have grown, a replica may not be left
}
if t4 >"$logs/T4" 2>&1; then row T4 passed "killed clients and a killed daemon leave no memory behind and no client broken"; else row T4 FAILED "see $logs/T4"; fi

# --- T5 ---
best=
if timeout 300 "$copies" rates "${RATES_MIB:-1024}" >"$logs/T5" 2>&1 && timeout 120 "$copies" file "$scene/m.safetensors" >>"$logs/T5" 2>&1; then
  best=$(sed -n 's/^best \([0-9.]*\).*/\1/p' "$logs/T5")
  through=$(sed -n 's/^through \([0-9.]*\).*/\1/p' "$logs/T5")
  row T5 passed "pinned $best GB/s; $(grep pageable "$logs/T5" | sed 's/ \+/ /g'); $(grep 'rows of *1024' "$logs/T5" | sed 's/ \+/ /g'); a plain program from the page cache $through GB/s"
else row T5 FAILED "see $logs/T5"; fi

# --- T6, T7: groups ---
nccl=$tools/nccl
if gcc -O2 -std=c17 -D_GNU_SOURCE -isystem "$include" -Idaemon -o "$nccl" tests/gpu/nccl.c "$build/libengine.a" "$cudart" -lpthread \
  -ldl -lm 2>"$logs/T6"; then
  for test in "T6 1" "T7 all"; do
    read -r id gpus <<<"$test"
    timeout 300 "$nccl" "$build/plugins" "$gpus" >"$logs/$id" 2>&1
    case $? in
      0) row $id passed "$(grep 'GPUs:' "$logs/$id")" ;;
      77) row $id skipped "$(grep 'GPUs,' "$logs/$id")" ;;
      *) row $id FAILED "see $logs/$id" ;;
    esac
  done
else row T6 FAILED "tests/gpu/nccl.c does not compile, see $logs/T6"; row T7 FAILED "needs T6"; fi
row T8 skipped "the plugin has no kernel of its own; copies are checked byte by byte in T2 and T9"

# --- T9, T10 ---
# Scripts that need a torch which sees the GPU, which is asked once: importing it takes seconds.
for_torch() { # ID SCRIPT ARGUMENT ...
  local id=$1
  shift
  if [ "$torch" = yes ]; then PYTHONPATH=client/python timeout 300 "$python" "$@" >"$logs/$id" 2>&1; else echo "$torch" >"$logs/$id"; return 77; fi
}
torch=$("$python" -c 'import torch; print("yes" if torch.cuda.is_available() else "this torch sees no GPU")' 2>&1 | tail -n 1)
last() { tail -n 1 "$logs/$1"; }
for_torch T9 tests/gpu/equal.py "$scene/m.safetensors" cuda:0
case $? in
  0) row T9 passed "$(last T9)" ;;
  77) row T9 skipped "$(last T9)" ;;
  *) row T9 FAILED "see $logs/T9" ;;
esac
PYTHONPATH=client/python timeout 300 "$python" tests/gpu/rates.py "$scene/m.safetensors" cuda:0 "${best:-inf}" >"$logs/T10" 2>&1
case $?$passed in
  0passed | [02]simulated) row T10 passed "$(last T10)" ;; # a goal that the fake misses is none
  2passed) row T10 FAILED "$(last T10)" ;;
  *) row T10 FAILED "see $logs/T10" ;;
esac

# --- T11, T12: programs, and what they would use otherwise ---
mkdir -p "$scene/programs"
for_torch T11 tests/gpu/programs.py "$scene/programs" cuda:0
case $? in
  0) row T11 passed "$(last T11)" ;;
  77) row T11 skipped "$(last T11)" ;;
  *) row T11 FAILED "see $logs/T11" ;;
esac
for_torch T12 tests/gpu/peers.py "$scene/m.safetensors" cuda:0
case $? in
  0) row T12 passed "$(last T12)" ;;
  77) row T12 skipped "$(last T12)" ;;
  *) row T12 FAILED "see $logs/T12" ;;
esac
exit $failed
