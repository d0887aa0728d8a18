#!/usr/bin/env bash
# Checks the direction of #include lines and the third-party fences against docs/layers.txt.
set -u
rules=docs/layers.txt bad=0
allowed() { sed -n "s|^$1: *||p" "$rules" | head -1; }
for file in $(find daemon config client -name '*.[ch]' -not -path 'daemon/plugins/*' | sort); do
  folder=$(dirname "$file")
  own=${folder#daemon/}
  grep -q "^$folder:" "$rules" || { echo "$file: folder $folder has no row in $rules"; bad=1; continue; }
  may=" $(allowed "$folder") $own "
  while read -r target; do
    case "$target" in
      tensorcast/*|grpc_health/*|grpc_reflection/*|google/*) layer=gen ;;
      */*) layer=${target%/*} ;;
      *) layer=$folder; layer=${layer#daemon/} ;;
    esac
    case "$may" in *" $layer "*) ;; *) echo "$file may not include $target ($layer)"; bad=1 ;; esac
  done < <(sed -n 's/^#include "\(.*\)"/\1/p' "$file")
done
while IFS=': ' read -r pattern places; do
  for hit in $(grep -rlF --include='*.[ch]' -e "$pattern" daemon config client 2>/dev/null); do
    ok=0
    for place in $places; do case "$hit" in "$place"*) ok=1 ;; esac; done
    [ "$ok" = 1 ] || { echo "$hit may not use $pattern"; bad=1; }
  done
done < <(sed -n '/^# Third-party/,$p' "$rules" | grep -v '^#')
# Python code between fork and exec can die where other threads hold locks, as those of gRPC do.
grep -rn --include='*.py' 'preexec_fn=' tests examples client && { echo "start processes without preexec_fn"; bad=1; }
[ "$bad" = 0 ] && echo "layers: every include points the right way"
exit "$bad"
