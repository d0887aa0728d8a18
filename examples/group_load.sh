#!/usr/bin/env bash
# Four tensor-parallel ranks load one checkpoint as a group: what they share is read once.
#
#     bash examples/group_load.sh ARTIFACT [WORLD_SIZE]        for example disk:/models/llama
#
# Needs a running daemon (TENSORCAST_SOCKET) with enable_owner_file_collective: true. Every rank is a process of its own, as
# in a real job; here they are background commands. One line per rank tells which executor ran, what the group read and what
# it saved, or why the ranks loaded alone. TENSORCAST names the command when it is not in PATH.
set -euo pipefail
artifact=${1:?usage: group_load.sh ARTIFACT [WORLD_SIZE]}
world=${2:-4}
tensorcast=${TENSORCAST:-tensorcast}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

ranks=()
for ((rank = 0; rank < world; rank++)); do
  "$tensorcast" load "$artifact" --tp-size "$world" --tp-rank "$rank" --group "example-$$" --rank "$rank" \
    --world-size "$world" --source-locality shared_source --json >"$out/$rank" &
  ranks+=($!)
done

failed=0
for ((rank = 0; rank < world; rank++)); do
  if wait "${ranks[rank]}"; then
    printf 'rank %s: %s\n' "$rank" "$(grep -oE '"(executor|skip_reason|collective_[a-z_]+)": ?("[^"]*"|[0-9]+)' "$out/$rank" |
      awk -F': ?' '!seen[$1]++ && $1 != "\"executor\"" || NR == 1 { gsub(/"/, ""); printf "%s%s=%s", sep, $1, $2; sep = " " }')"
  else
    echo "rank $rank failed" >&2
    failed=1
  fi
done
exit "$failed"
