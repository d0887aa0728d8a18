#!/usr/bin/env bash
# Every constant that bounds something has a row in tests/limits.txt, which names the test that goes beyond it, or says why
# nothing from outside can. A new limit without a row fails, as does a row whose constant or test is gone.
set -u
cd "$(dirname "$0")/.." || exit 1
list=tests/limits.txt bad=0
words='MAX|MOST|LONGEST|LARGEST|LIMIT|BURST|SLOTS|SURPLUS|BACKLOG|CAPACITY'
say() { echo "limits: $*"; bad=1; }

# FILE NAME of every constant with one of these words in its name
found=$(grep -rnoE "\b([A-Z0-9]+_)*($words)(_[A-Z0-9]+)* = ?[^=]|#define ([A-Z0-9]+_)*($words)(_[A-Z0-9]+)* " \
  daemon client config --include='*.[ch]' --include='*.py' --exclude-dir=build | grep -vE ':(U?INT[0-9]*|SIZE|SSIZE|PATH|NAME|IOV|LONG)_MAX\b' |
  sed -E 's/:[0-9]+:(#define )?([A-Z0-9_]+).*$/ \2/' | sort -u)
rows=$(grep -vE '^(#|$)' "$list")

missing=$(join -v 1 <(sed 's/ /:/' <<<"$found" | sort) <(awk '{ print $1 ":" $2 }' <<<"$rows" | sort -u))
for it in $missing; do say "${it%:*}: ${it#*:} has no row in $list; name the test that goes beyond it"; done

while read -r file name test says; do
  grep -qE "(\b$name =|#define $name )" "$file" 2>/dev/null || say "$list: there is no $name in $file any more"
  case $test in
    own) [ -n "$says" ] || say "$list: $name: say why nothing from outside can exceed it" ;;
    *) grep -qE "^((static void|def) $says\(|TEST(_IN)?\($says\b)" "tests/$test" 2>/dev/null || say "$list: $name: tests/$test has no test $says" ;;
  esac
done <<<"$rows"
[ "$bad" = 0 ] && echo "limits: $(wc -l <<<"$rows") limits, each with a test that goes beyond it or a reason why nothing can"
exit "$bad"
