#!/usr/bin/env bash
# Makes a bare system of this machine's Debian release, with systemd and the libraries that PROGRAM... are linked with, or finds the one
# that was made before, and prints its folder, as the only line on stdout.      usage, as root: base=$(bash tests/booted/base.sh PROGRAM...)
#
# It is kept beside the virtual environments (setup/venv.sh) and never booted itself. Packages come from where this machine's own do.
set -euo pipefail
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/tensorcast
release=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
packages=(systemd systemd-sysv dbus libpam-systemd procps util-linux logrotate python3 ca-certificates)

# package_of FILE: which one has it. The packages name some files by /lib and some by /usr/lib, which are one folder.
package_of() { { dpkg-query -S "$1" || dpkg-query -S "/usr$1"; } 2>/dev/null | sed -n '1s/[:,].*//p'; }

while read -r library; do
  packages+=("$(package_of "$library")")
done < <(ldd "$@" | awk '$2 == "=>" && $3 ~ "^/" {print $3}' | sort -u)
list=$(printf '%s\n' "${packages[@]}" | sed '/^$/d' | sort -u | paste -sd,)

mkdir -p "$cache"
base=$cache/booted-$(echo "$release $list" | sha256sum | cut -c1-12)
exec 9>"$base.lock"
flock 9
if [ ! -e "$base.complete" ]; then
  echo "booted: installing $release into $base" >&2
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $release" | head -n 1)
  rm -rf --one-file-system "$base"
  debootstrap --variant=minbase --include="$list" "$release" "$base" "$mirror" >&2
  rm -f "$base"/var/cache/apt/archives/*.deb
  : >"$base/etc/machine-id"
  touch "$base.complete"
fi
echo "$base"
