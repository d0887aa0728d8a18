#!/usr/bin/env bash
# Finds the CUDA runtime to build against and prints three words: folder of headers, library, its soname. Then two more for
# NCCL, 2.19 or later, where its header is: the folder of nccl.h, and that of libnccl.so.2 or "-" when there is none to be seen
# (it is opened at run time). Prints nothing on standard output where no CUDA will do (12.5 or later). -v: says on standard
# error what is missing.
#
# Looked at, in this order: $NCCL_HOME (for NCCL), $CUDA_HOME, $CUDA_PATH, the usual prefixes, and the PyPI packages
# (nvidia-cuda-runtime and nvidia-nccl-cu13, or nvidia-cuda-runtime-cu12 and nvidia-nccl-cu12) of the active virtual environment.
set -u
verbose=${1:-}
prefixes=("${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda /usr/local /usr)
nccl_prefixes=("${NCCL_HOME:-}" "${prefixes[@]}")
for packages in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages}; do
  prefixes+=("$packages/nvidia/cu13" "$packages/nvidia/cuda_runtime")
  nccl_prefixes+=("$packages/nvidia/nccl")
done
looked="CUDA_HOME, CUDA_PATH, /usr/local/cuda, /opt/cuda, /usr/local, /usr, PyPI packages of VIRTUAL_ENV"

headers_will_do() {
  printf '#include <cuda.h>\n#include <cuda_runtime_api.h>\n#if CUDART_VERSION < 12050\n#error too old\n#endif\n' |
    ${CC:-gcc} -std=c17 -fsyntax-only -x c -isystem "$1" - 2>/dev/null
}

# The folder of the first library of that name under the prefix.
folder_of() {
  local prefix=$1 name=$2 folder
  for folder in "$prefix/lib64" "$prefix/lib" "$prefix/lib/$(uname -m)-linux-gnu"; do
    [ -e "$folder/$name" ] && echo "$folder" && return
  done
}

find_nccl() {
  local prefix version
  for prefix in "${nccl_prefixes[@]}"; do
    [ -n "$prefix" ] && [ -e "$prefix/include/nccl.h" ] || continue
    version=$(sed -n 's/^#define NCCL_VERSION_CODE *//p' "$prefix/include/nccl.h")
    [ "${version:-0}" -ge 21900 ] || continue
    version=$(folder_of "$prefix" libnccl.so.2)
    echo "$prefix/include ${version:--}"
    return
  done
  [ "$verbose" != -v ] || echo "plugins: tensorcast-cuda.so without NCCL, because no nccl.h of 2.19 or later was found in: \
NCCL_HOME, $looked" >&2
}

for prefix in "${prefixes[@]}"; do
  [ -n "$prefix" ] && [ -e "$prefix/include/cuda_runtime_api.h" ] || continue
  headers_will_do "$prefix/include" || continue
  for library in "$prefix"/lib64/libcudart.so* "$prefix"/lib/libcudart.so* "$prefix"/lib/"$(uname -m)"-linux-gnu/libcudart.so*; do
    [ -e "$library" ] || continue
    soname=$(objdump -p "$library" 2>/dev/null | sed -n 's/^ *SONAME *//p')
    [ -n "$soname" ] || continue
    echo "$prefix/include $library $soname $(find_nccl)"
    exit 0
  done
done
[ "$verbose" != -v ] || echo "plugins: no tensorcast-cuda.so, because no CUDA runtime of 12.5 or later (cuda_runtime_api.h and \
libcudart.so) was found in: $looked" >&2
