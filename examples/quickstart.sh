#!/usr/bin/env bash
# From a fresh clone to four tensor-parallel ranks with their weights in memory, in one command.
#
#     bash examples/quickstart.sh [--size 1GiB] [--dir PATH] [--keep] [--verbose]
#
# Installs what is missing, builds, writes a checkpoint with the `safetensors` package, starts the daemon on temporary
# sockets, loads four ranks at once, compares every byte with `safetensors`, and leaves nothing running. --dir says where the
# checkpoint goes (default: build/), --keep leaves it there, and a kept one is used again. --verbose shows what the daemon logged.
# Only packages that are missing need root.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
size=1GiB dir=$root/build keep=0 ranks=4 verbose=0

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit "$1"; }
while [ $# -gt 0 ]; do
  case $1 in
    --size) size=${2:?--size needs a value such as 4GiB}; shift 2 ;;
    --dir) dir=${2:?--dir needs a path}; shift 2 ;;
    --keep) keep=1; shift ;;
    --verbose) verbose=1; shift ;;
    -h | --help) usage 0 ;;
    *) echo "quickstart: unknown option $1" >&2; usage 2 >&2 ;;
  esac
done
mkdir -p "$dir"
checkpoint=$(cd "$dir" && pwd -P)/quickstart-checkpoint
[ ! -e "$checkpoint" ] || keep=1 # an earlier run kept it; it stays
work=$(mktemp -d /tmp/tensorcast-XXXXXX) # short: a socket path has at most 107 bytes
daemon=

cleanup() {
  if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then wait "$daemon" || true; fi
  [ "$keep" = 1 ] || rm -rf "$checkpoint"
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

step() { printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi; }

compiled() { grep -c ' -c -o ' "$1" || true; }

# With how many of the files are compiled: a line that changes, or without a terminal one for each tenth.
build() {
  local all done=0 told=0 make
  make -C "$root" -n --no-print-directory all >"$work/make.plan" 2>/dev/null || true
  all=$(compiled "$work/make.plan")
  : >"$work/make.log"
  make -C "$root" -j"$(nproc)" --no-print-directory all >"$work/make.log" 2>&1 &
  make=$!
  while kill -0 "$make" 2>/dev/null; do
    done=$(compiled "$work/make.log")
    if [ -t 1 ]; then printf '\r[%d/%d files compiled]' "$done" "$all"
    elif [ $((done * 10)) -ge $((told * all + all)) ] && [ "$all" -gt 0 ]; then told=$((done * 10 / all)); echo "[$done/$all files compiled]"
    fi
    sleep 0.2
  done
  [ ! -t 1 ] || printf '\r\033[K'
  wait "$make" || { tail -30 "$work/make.log" >&2; exit 1; }
}

start_daemon() {
  cat >"$work/config.yaml" <<YAML
server: { socket_path: $work/daemon.sock, state_dir: $work/state }
sources: { disk: { trusted_roots: ['${checkpoint//\'/\'\'}'] } }
YAML
  "$root/build/tensorcastd" --config "$work/config.yaml" 2>"$work/log" &
  daemon=$!
  export TENSORCAST_SOCKET=$work/daemon.sock
  for _ in $(seq 100); do
    "$root/build/tensorcast" status --quiet >/dev/null 2>&1 && return
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.05
  done
  echo "quickstart: the daemon did not start; its log says:" >&2
  cat "$work/log" >&2
  exit 1
}

load_ranks() {
  local rank loads=() failed=0
  for ((rank = 0; rank < ranks; rank++)); do
    "$root/build/tensorcast" load "disk:$checkpoint" --tp-size "$ranks" --tp-rank "$rank" --digest --json >"$work/rank$rank" &
    loads+=($!)
  done
  for load in "${loads[@]}"; do wait "$load" || failed=1; done
  if [ "$failed" = 1 ]; then echo "quickstart: a load failed; the daemon's log says:" >&2; cat "$work/log" >&2; exit 1; fi
}

step "1. Installing what is missing, building"
python=$(bash "$root/setup/setup.sh")
build
echo "build/tensorcastd, build/tensorcast, build/libtensorcast.so"

step "2. Writing a checkpoint of $size with the safetensors package"
"$python" "$root/examples/make_checkpoint.py" "$checkpoint" --size "$size"

step "3. tensorcast load disk:... --tp-size $ranks --tp-rank 0..$((ranks - 1)), all at once"
start_daemon
load_ranks
"$python" "$root/examples/compare_ranks.py" "$checkpoint" "$work"/rank?

kill -TERM "$daemon"
wait "$daemon"
daemon=
if [ "$verbose" = 1 ]; then
  step "What the daemon logged"
  grep event=load_done "$work/log" | sed -E 's/^time=[^ ]+ level=info //; s/ artifact=("[^"]*"|[^ ]+)//' | fold -s -w 118
fi

step "4. Done"
if [ "$keep" = 1 ]; then
  echo "The checkpoint is kept in $checkpoint; see tensorcast explain and tensorcast load --help for more."
else
  echo "Nothing is left running; with --keep the checkpoint stays."
fi
