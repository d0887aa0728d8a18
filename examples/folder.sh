#!/usr/bin/env bash
# An artifact as a folder in memory, for programs that take nothing but a folder.
#
#     bash examples/folder.sh [ARTIFACT]
#
# Starts a daemon, makes the folder twice (one copy in memory), shows what is in it and what the daemon charges, and releases it.
# Without ARTIFACT a small model is made up. Needs build/tensorcast and build/tensorcastd (make). docs/folder.md tells more.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${TENSORCAST_BUILD:-$root/build}
case ${1:-} in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

work=$(mktemp -d /tmp/tensorcast-XXXXXX) # short: a socket path has at most 107 bytes
memory=$(mktemp -d /dev/shm/tensorcast-XXXXXX)
daemon=
cleanup() {
  if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then wait "$daemon" || true; fi
  rm -rf "$work" "$memory"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

artifact=${1:-}
if [ -z "$artifact" ]; then
  mkdir "$work/model"
  printf '{"model_type": "example"}\n' >"$work/model/config.json"
  header='{"w":{"dtype":"F32","shape":[256],"data_offsets":[0,1024]}}     '
  { printf '\x40\0\0\0\0\0\0\0%s' "$header"; head -c 1024 /dev/urandom; } >"$work/model/model.safetensors"
  artifact=disk:$work/model
fi

cat >"$work/config.yaml" <<YAML
server: { socket_path: $work/daemon.sock, state_dir: $work/state }
sources: { disk: { trusted_roots: ['$work/model'] } }
YAML
"$build/tensorcastd" --config "$work/config.yaml" 2>"$work/log" &
daemon=$!
export TENSORCAST_SOCKET=$work/daemon.sock
for _ in $(seq 100); do
  "$build/tensorcast" status --quiet >/dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.05
done

"$build/tensorcast" folder "$artifact" "$memory/one"
"$build/tensorcast" folder "$artifact" "$memory/two" # links to the same memory
ls -l "$memory/one"
"$build/tensorcast" status | grep -A 2 '^folders'
"$build/tensorcast" release "$memory/one"
"$build/tensorcast" release "$memory/two"
[ ! -e "$memory/one" ] && [ ! -e "$memory/two" ] && echo "both are gone"
