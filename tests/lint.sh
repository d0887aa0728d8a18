#!/usr/bin/env bash
# Static checks; each says what it found, and all of them run.       usage: lint.sh [CC FLAG ...]
#
# The flags are those that the compiler gets (`make lint` gives them). Tools come from setup/setup.sh lint. What is not right
# for this code is left out in .clang-tidy, ruff.toml and tests/cppcheck.txt.
set -u
cd "$(dirname "$0")/.." || exit 1
flags=("$@") failed=0
python=$(bash setup/setup.sh lint) || exit 1
files() { # PATTERN ...: not by git, which a bare system has not
  local pattern
  for pattern in "$@"; do find daemon client config tests examples setup .ci -name build -prune -o -type f -path "$pattern" -print; done
}
mapfile -t all < <(files '*.c' '*.h')
mapfile -t sources < <(files 'daemon/*.c' 'client/*.c' 'config/*.c' | grep -v '^daemon/plugins/')
mapfile -t scripts < <(files '*.sh' .ci/run)

# NAME COMMAND ...: passes when it exits with 0 and says nothing
lint() {
  local name=$1 said code=0
  shift
  said=$("$@" 2>&1) || code=$?
  if [ "$code" = 0 ] && [ -z "$said" ]; then echo "lint: $name: nothing found"; return; fi
  failed=1
  echo "$said"
  echo "lint: $name: FAILED"
}

tidy() { # on stderr it counts what it does not show
  printf '%s\n' "${sources[@]}" |
    xargs -P "$(nproc)" -n 40 sh -c 'clang-tidy --quiet "$@" -- '"${flags[*]@Q}"' -Wno-unknown-warning-option' sh 2>/dev/null
  return 0 # what it prints counts
}
# a detour over an integer; what a cast takes away is an error for the compiler already (-Wcast-qual)
const_casts() {
  ! grep -nE '\((const )?struct \w+ \*\)\(u?intptr_t\)' "${sources[@]}"
}

lint clang-format clang-format --dry-run -Werror "${all[@]}"
lint clang-tidy tidy
lint const-casts const_casts
lint cppcheck cppcheck --quiet --std=c11 --enable=warning,performance,portability --suppressions-list=tests/cppcheck.txt \
  --inline-suppr -j"$(nproc)" -Idaemon -I. -Iclient --include="$(echo /usr/include/*/sys/queue.h)" "${sources[@]}"
lint shellcheck shellcheck -S warning "${scripts[@]}"
lint ruff "$(dirname "$python")/ruff" check --quiet --no-cache --output-format concise .
types() { # what programs that use the client are told; their packages need not be installed here
  MYPYPATH=client/python "$(dirname "$python")/mypy" --strict --follow-imports=silent --ignore-missing-imports --cache-dir=/dev/null \
    --no-error-summary tests/python/typed_use.py
}
lint types types
# Its schemas know neither kustomizations nor what other projects define; tests/manifests.py does.
mapfile -t manifests < <(grep -lE '^apiVersion: (v1|[a-z]+/v1|networking.k8s.io/v1)$' deploy/kubernetes/*.yaml examples/*.yaml)
lint kubernetes "$(dirname "$python")/kubernetes-validate" --strict --quiet "${manifests[@]}"
lint manifests "$python" tests/manifests.py
exit "$failed"
