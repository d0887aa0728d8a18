#!/usr/bin/env bash
# Measures tensorcast beside the machine's ceilings and other loaders; `make bench` calls it. As root, on a quiet machine.
# usage: run.sh BUILD_DIR [KIND] [OPTION ...]         `make bench BENCH="--vllm ..."` passes kind and options on
#
#     nothing                            loads (bench.py)
#     --stores --groups --shards --variants --export --activations --uploads --faces --hosts --operators    each by KIND_bench.py
#     --cold --hot --mapped --into       one way of loads (ways_bench.py)
#     --vllm                             tests/vllm/bench.py
#
# KIND --help lists the options of its script. Without --write and --quick the table goes into docs/performance-tables.md (that of
# hosts and operators into docs/performance-KIND.md), and charts of the tables into docs/performance.svg.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' tests/bench/run.sh; } # before the environments are installed
case "${1:-}" in -h | --help) usage; exit ;; esac
build=${1:-build}
[ $# -eq 0 ] || shift
case "${1:-}" in -h | --help) usage; exit ;; esac
if [ "${1:-}" = --vllm ]; then # with an environment of its own
  shift
  exec bash tests/vllm/bench.sh "$build" "$@"
fi
work=bench page=docs/performance-tables.md
case "${1:-}" in --hosts | --operators) work=test page=docs/performance-${1#--}.md ;; esac # of other loaders they need none
builder=$(bash setup/setup.sh "$work") # has what makes the client's package
python=$builder
[ "${1:-}" != --faces ] || python=$(bash tests/faces/setup.sh)
mkdir -p "$build/bench"
flags=(-O3 -march=native -std=gnu17 -Wall -Wextra -Werror)
make B="$build" "$build/bench/native" >/dev/null
gcc "${flags[@]}" -shared -fPIC -o "$build/bench/libtouch.so" tests/bench/native.c -lpthread
gcc "${flags[@]}" -Iclient -o "$build/bench/worker" tests/bench/worker.c -L"$build/bench" -L"$build" -ltouch -ltensorcast \
  -Wl,-rpath,'$ORIGIN:$ORIGIN/..'
gcc "${flags[@]}" -Iclient -o "$build/bench/resident" tests/bench/resident.c -L"$build" -ltensorcast -Wl,-rpath,'$ORIGIN/..'
gcc "${flags[@]}" -o "$build/bench/slow_store" tests/bench/slow_store.c -lpthread
gcc "${flags[@]}" -o "$build/bench/upload" tests/bench/upload.c -lcurl
gcc "${flags[@]}" -o "$build/bench/download" tests/bench/download.c -L"$build/bench" -ltouch -lcurl -lcrypto -Wl,-rpath,'$ORIGIN'
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r client/python "$copy/"
rm -rf "$copy"/*/build # of an older installation: newer than its sources in a copy
rm -rf "$build/bench/python"
"$builder" -m pip install --quiet --no-deps --no-build-isolation --target "$build/bench/python" "$copy/python"
script=bench.py
case "${1:-}" in
  --stores | --groups | --shards | --variants | --export | --faces | --activations | --uploads | --hosts | --operators)
    script=${1#--}_bench.py
    shift
    ;;
  --cold | --hot | --mapped | --into)
    script=ways_bench.py
    ;;
esac
case " $* " in
  *" --write "* | *" --quick "* | *" --help "*) ;;
  *)
    set -- "$@" --write "$page"
    trap 'rm -rf "$copy"; "$python" tests/bench/charts.py' EXIT
    ;;
esac
unset TENSORCAST_SOCKET PYTHONDONTWRITEBYTECODE
PYTHONPATH=$build/bench/python "$python" "tests/bench/$script" "$build" "$@"
