#!/usr/bin/env bash
# Builds every tests/fuzz/fuzz_*.c with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer into a folder.
# usage: build.sh FOLDER [TARGET ...]        TARGET is a name such as `config`; default: all of them
set -eu
[ $# -ge 1 ] || { sed -n 2,3p "$0"; exit 2; }
cd "$(dirname "$0")/../.."
out=$1; shift
if [ $# -eq 0 ]; then for file in tests/fuzz/fuzz_*.c; do name=${file##*/fuzz_}; set -- "$@" "${name%.c}"; done; fi
command -v clang >/dev/null || { echo "build.sh: clang is needed for libFuzzer (apt-get install clang)" >&2; exit 1; }

libs=() objects=()
for lib in support cli tensorcast daemon engine; do libs+=("$out/lib$lib.a"); done
for name in "$@"; do objects+=("$out/obj/tests/fuzz/fuzz_$name.o"); done
# -fsanitize=fuzzer-no-link everywhere: the engine itself is what the fuzzer must see the branches of
make --no-print-directory -j2 B="$out" CC=clang WERROR= SAN=fuzzer-no-link,address,undefined CFLAGS="-O1 -g" \
  "${libs[@]}" "${objects[@]}"
for name in "$@"; do
  clang -fsanitize=fuzzer,address,undefined -o "$out/fuzz_$name" "$out/obj/tests/fuzz/fuzz_$name.o" \
    -Wl,--start-group "${libs[@]}" -Wl,--end-group -luv -lnghttp2 -lprotobuf-c -lyaml -lcurl -lexpat -lssl -lcrypto -lpthread -lm -ldl
done
echo "fuzzers: $# built in $out"
