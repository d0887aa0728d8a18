#!/usr/bin/env bash
# Checks the direction of #include lines, of symbols in what was built, and the third-party fences against docs/layers.txt.
set -u
rules=docs/layers.txt bad=0
# One awk for all files: a shell that starts a few programs for each line takes ten seconds.
mapfile -t files < <(find daemon config client -name '*.[ch]' -not -path 'daemon/plugins/*' | sort)
awk '
  FILENAME == ARGV[1] {
    if (/^# Third-party/) fences = 1
    if (!fences && match($0, /^[a-z][a-z0-9_.\/]*:/)) may[substr($0, 1, RLENGTH - 1)] = " " substr($0, RLENGTH + 1) " "
    next
  }
  FNR == 1 {
    folder = FILENAME; sub(/\/[^\/]*$/, "", folder)
    own = folder; sub(/^daemon\//, "", own)
    if (FILENAME in may) folder = FILENAME
    if (!(folder in may)) { print FILENAME ": folder " folder " has no row in " ARGV[1]; bad = 1 }
  }
  /^#include "/ && folder in may {
    split($0, quoted, "\""); target = layer = quoted[2]
    if (target ~ /^(tensorcast|grpc_health|grpc_reflection|google)\//) layer = "gen"
    else if (target ~ /\//) sub(/\/[^\/]*$/, "", layer)
    else layer = own
    if (layer != own && !index(may[folder], " " layer " ")) { print FILENAME " may not include " target " (" layer ")"; bad = 1 }
  }
  END { exit bad }' "$rules" "${files[@]}" || bad=1
# A declaration can lie in a folder that may be included, and the definition elsewhere.
mapfile -t objects < <(printf '%s\n' "${files[@]}" | sed -nE 's|(.*)\.c$|build/obj/\1.o|p' | xargs ls 2>/dev/null)
[ "${#objects[@]}" = 0 ] || nm -A -g "${objects[@]}" | awk '
  FILENAME == ARGV[1] {
    if (/^# Third-party/) fences = 1
    if (!fences && match($0, /^[a-z][a-z0-9_.\/]*:/)) may[substr($0, 1, RLENGTH - 1)] = " " substr($0, RLENGTH + 1) " "
    next
  }
  {
    file = $1; sub(/^build\/obj\//, "", file); sub(/\.o:.*/, ".c", file)
    folder = file; sub(/\/[^\/]*$/, "", folder); sub(/^daemon\//, "", folder)
    if ($(NF - 1) ~ /^[TDBRCVW]$/) defined[$NF] = folder
    else if ($(NF - 1) == "U") { users[++n] = file; folders[n] = folder; used[n] = $NF }
  }
  END {
    for (i = 1; i <= n; i++) {
      layer = defined[used[i]]; row = users[i]
      if (!(row in may)) sub(/\/[^\/]*$/, "", row)
      if (layer == "" || layer == folders[i] || !(row in may) || index(may[row], " " layer " ")) continue
      print users[i] " may not use " used[i] " (" layer ")"; bad = 1
    }
    exit bad
  }' "$rules" - || bad=1
while IFS=': ' read -r pattern places; do
  for hit in $(grep -rlF --include='*.[ch]' -e "$pattern" daemon config client 2>/dev/null); do
    ok=0
    for place in $places; do case "$hit" in "$place"*) ok=1 ;; esac; done
    [ "$ok" = 1 ] || { echo "$hit may not use $pattern"; bad=1; }
  done
done < <(sed -n '/^# Third-party/,$p' "$rules" | grep -v '^#')
# Python code between fork and exec can die where other threads hold locks, as those of gRPC do.
grep -rn --include='*.py' 'preexec_fn=' tests examples client && { echo "start processes without preexec_fn"; bad=1; }
[ "$bad" = 0 ] && echo "layers: every include and symbol points the right way"
exit "$bad"
