#!/usr/bin/env bash
# Finds the CUDA runtime to build against and prints three words: folder of headers, library, its soname. Prints nothing on
# standard output, and one line on standard error when asked to (-v), where there is none that will do (12.5 or later).
#
# Looked at, in this order: $CUDA_HOME, $CUDA_PATH, the usual prefixes, and the PyPI packages (nvidia-cuda-runtime, or
# nvidia-cuda-runtime-cu12) of the virtual environment that is active.
set -u
prefixes=("${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda /usr/local /usr)
for packages in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages}; do
  prefixes+=("$packages/nvidia/cu13" "$packages/nvidia/cuda_runtime")
done

headers_will_do() {
  printf '#include <cuda.h>\n#include <cuda_runtime_api.h>\n#if CUDART_VERSION < 12050\n#error too old\n#endif\n' |
    ${CC:-gcc} -std=c17 -fsyntax-only -x c -isystem "$1" - 2>/dev/null
}

for prefix in "${prefixes[@]}"; do
  [ -n "$prefix" ] && [ -e "$prefix/include/cuda_runtime_api.h" ] || continue
  headers_will_do "$prefix/include" || continue
  for library in "$prefix"/lib64/libcudart.so* "$prefix"/lib/libcudart.so* "$prefix"/lib/"$(uname -m)"-linux-gnu/libcudart.so*; do
    [ -e "$library" ] || continue
    soname=$(objdump -p "$library" 2>/dev/null | sed -n 's/^ *SONAME *//p')
    [ -n "$soname" ] || continue
    echo "$prefix/include $library $soname"
    exit 0
  done
done
[ "${1:-}" != -v ] || echo "plugins: no tensorcast-cuda.so, because no CUDA runtime of 12.5 or later (cuda_runtime_api.h and \
libcudart.so) was found in: CUDA_HOME, CUDA_PATH, /usr/local/cuda, /opt/cuda, /usr/local, /usr, PyPI packages of VIRTUAL_ENV" >&2
