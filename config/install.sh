#!/usr/bin/env bash
# Puts what was built where a Debian system expects it; `make install` calls it.
# usage: DESTDIR=... PREFIX=... VERSION=... install.sh BUILD_DIR [remove]
#
# Without DESTDIR, which packages use, the linker is told of the library. `remove` takes away what an install of the same
# version put there, and folders that are ours alone; /etc/tensorcast and what the daemon wrote stay.
set -euo pipefail
build=$1
root=${DESTDIR:-}${PREFIX:?} major=${VERSION:?}
major=${major%%.*}

action=${2:-install}
put() { # put MODE SOURCE TARGET
  if [ "$action" = remove ]; then rm -f "$root/$3"; else install -D -m "$1" "$2" "$root/$3"; fi
}
link() { # link TO TARGET
  if [ "$action" = remove ]; then rm -f "$root/$2"; else ln -sf "$1" "$root/$2"; fi
}
fill() { # fill SOURCE TARGET: a template, with @PREFIX@ and @VERSION@ replaced
  if [ "$action" = remove ]; then rm -f "$root/$2"; return; fi
  sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@VERSION@|$VERSION|g" "$1" | install -D -m 644 /dev/stdin "$root/$2"
}
complete() { # complete SHELL TARGET: written by the command, which knows its options
  if [ "$action" = remove ]; then rm -f "$root/$2"; return; fi
  "$build/tensorcast" completion "$1" | install -D -m 644 /dev/stdin "$root/$2"
}

put 755 "$build/tensorcastd" bin/tensorcastd
put 755 "$build/tensorcast" bin/tensorcast
put 755 "$build/libtensorcast.so" "lib/libtensorcast.so.$VERSION"
link "libtensorcast.so.$VERSION" "lib/libtensorcast.so.$major"
link "libtensorcast.so.$major" lib/libtensorcast.so
put 644 "$build/libtensorcast.a" lib/libtensorcast.a
if [ -e "$build/plugins/tensorcast-cuda.so" ] || [ "$action" = remove ]; then put 755 "$build/plugins/tensorcast-cuda.so" lib/tensorcast/plugins/tensorcast-cuda.so; fi
put 644 client/tensorcast.h include/tensorcast.h
fill config/tensorcast.pc.in lib/pkgconfig/tensorcast.pc
for page in docs/man/*.[1-8]; do put 644 "$page" "share/man/man${page##*.}/$(basename "$page")"; done
complete bash share/bash-completion/completions/tensorcast
complete zsh share/zsh/site-functions/_tensorcast
complete fish share/fish/vendor_completions.d/tensorcast.fish
put 644 config/store_daemon_config.yaml share/doc/tensorcast/store_daemon_config.yaml
put 644 config/tensorcast.logrotate share/doc/tensorcast/tensorcast.logrotate
fill config/tensorcastd.service lib/systemd/system/tensorcastd.service
fill config/tensorcastd-user.service share/systemd/user/tensorcastd.service # also below ~/.local systemd looks there
fill config/tensorcastd.socket lib/systemd/system/tensorcastd.socket
put 644 config/tensorcast.sysusers lib/sysusers.d/tensorcast.conf
if [ "$action" = remove ]; then
  for folder in lib/tensorcast/plugins lib/tensorcast share/doc/tensorcast; do
    if [ -d "$root/$folder" ]; then rmdir --ignore-fail-on-non-empty "$root/$folder"; fi
  done
fi
# Programs find the library by the linker's cache, which only root writes.
if [ -z "${DESTDIR:-}" ]; then
  if [ "$(id -u)" = 0 ]; then PATH=$PATH:/sbin:/usr/sbin ldconfig
  elif [ "$action" = install ]; then echo "programs that link libtensorcast need LD_LIBRARY_PATH=$root/lib"
  fi
fi
