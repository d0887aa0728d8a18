#!/usr/bin/env bash
# A checkpoint into a bucket, and from there: bash examples/upload.sh MODEL gs://bucket/path
# After an interruption run it again: what has arrived is not sent a second time.
set -euo pipefail
model=$1 target=$2
tensorcast put "$model" "$target" --resume
tensorcast inspect --standalone "$target" --summary
