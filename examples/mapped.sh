#!/usr/bin/env bash
# The three usual places of a model that cannot change, each loaded from the files' own pages: nothing is read, nothing copied.
#
#     bash examples/mapped.sh hub-cache|squashfs|oci [MODEL_DIR]          as root; MODEL_DIR has *.safetensors
#
# hub-cache   a Hugging Face cache whose blobs get the immutable attribute (chattr +i)
# squashfs    a model image of squashfs, mounted
# oci         a model in a layer of an OCI image, unpacked to erofs as containerd's erofs snapshotter does, mounted
#
# Builds the place in a temporary folder, starts a daemon that trusts it, shows what `explain` says, loads with --memory mapped,
# compares every tensor with a copied load, and takes everything down again. Without MODEL_DIR a small model is made up.
# Needs build/tensorcast and build/tensorcastd (make), for squashfs mksquashfs, for oci mkfs.erofs. docs/mapped.md tells more.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${TENSORCAST_BUILD:-$root/build}
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit "$1"; }
kind=${1:-} model=${2:-}
case $kind in hub-cache | squashfs | oci) ;; -h | --help) usage 0 ;; *) usage 2 >&2 ;; esac
needed=chattr
[ "$kind" != squashfs ] || needed=mksquashfs
[ "$kind" != oci ] || needed=mkfs.erofs
for tool in "$needed" python3; do
  command -v "$tool" >/dev/null || { echo "mapped: $tool is not installed" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "mapped: mounting and chattr +i need root" >&2; exit 1; }

work=$(mktemp -d /tmp/tensorcast-XXXXXX) # short: a socket path has at most 107 bytes
daemon=
cleanup() {
  if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then wait "$daemon" || true; fi
  if mountpoint -q "$work/mounted" 2>/dev/null; then umount "$work/mounted"; fi
  [ ! -d "$work/hub" ] || chattr -R -i "$work/hub" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

make_up_model() { # two files of a few tensors, without any package
  mkdir "$work/model"
  python3 - "$work/model" <<'PYTHON'
import json, os, struct, sys
for part in (1, 2):
    header, end = {}, 0
    for layer in range(4):
        header[f"model.layers.{layer}.{part}.weight"] = {"dtype": "BF16", "shape": [256, 512], "data_offsets": [end, end + 262144]}
        end += 262144
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{sys.argv[1]}/model-0000{part}-of-00002.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + os.urandom(end))
PYTHON
  model=$work/model
}

# As huggingface_hub leaves it: links to blobs, which are never written again. The attribute keeps it so, also from root.
place_hub_cache() {
  local repository=$work/hub/models--example--model part
  mkdir -p "$repository/blobs" "$repository/snapshots/main"
  for part in "$model"/*.safetensors; do
    local sum
    sum=$(sha256sum "$part" | cut -d' ' -f1)
    cp "$part" "$repository/blobs/$sum"
    ln -s "../../blobs/$sum" "$repository/snapshots/main/$(basename "$part")"
  done
  chattr +i "$repository"/blobs/* || { echo "mapped: $work keeps no attributes; name the folder in sources.disk.immutable_roots" >&2; exit 1; }
  trusted=$repository artifact=disk:$repository/snapshots/main
}

mount_image() {
  mkdir "$work/mounted"
  mount -t "$1" -o loop,ro "$work/image" "$work/mounted"
  trusted=$work/mounted artifact=disk:$work/mounted
}

# Not compressed: a page of the file is then a page of the image, and what is cached needs no unpacking.
place_squashfs() {
  mksquashfs "$model" "$work/image" -noappend -noI -noD -noF -no-progress -quiet >/dev/null
  mount_image squashfs
}

# The layer of an image that was built FROM scratch with COPY model/ /; a registry would give the same tar.
place_oci() {
  mkdir "$work/layer"
  tar -C "$model" -cf "$work/layer.tar" .
  tar -C "$work/layer" -xf "$work/layer.tar"
  mkfs.erofs "$work/image" "$work/layer" >/dev/null
  mount_image erofs
}

start_daemon() {
  cat >"$work/config.yaml" <<YAML
server: { socket_path: $work/daemon.sock, state_dir: $work/state }
sources: { disk: { trusted_roots: ['$trusted'] } }
YAML
  "$build/tensorcastd" --config "$work/config.yaml" 2>"$work/log" &
  daemon=$!
  export TENSORCAST_SOCKET=$work/daemon.sock
  for _ in $(seq 100); do
    "$build/tensorcast" status --quiet >/dev/null 2>&1 && return
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.05
  done
  echo "mapped: the daemon did not start; its log says:" >&2
  cat "$work/log" >&2
  exit 1
}

[ -n "$model" ] || make_up_model
"place_${kind//-/_}"
start_daemon
"$build/tensorcast" explain "$artifact" | grep '^mapped'
"$build/tensorcast" load "$artifact" --memory mapped --digest >"$work/mapped"
"$build/tensorcast" load "$artifact" --memory copied --digest >"$work/copied"
grep -E '^  (bytes|memory) ' "$work/mapped"
cmp <(grep -E '^[0-9a-f]{64}  ' "$work/mapped") <(grep -E '^[0-9a-f]{64}  ' "$work/copied")
echo "$(grep -cE '^[0-9a-f]{64}  ' "$work/mapped") tensors, equal to those of a copied load"
"$build/tensorcast" release --all --quiet # now the daemon holds nothing of the image any more, so it can be unmounted
if mountpoint -q "$work/mounted" 2>/dev/null; then umount "$work/mounted"; fi
