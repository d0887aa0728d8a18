#!/usr/bin/env bash
# Puts what was built where a Debian system expects it; `make install` calls it.
# usage: DESTDIR=... PREFIX=... LIBDIR=... VERSION=... install.sh BUILD_DIR [remove]
#
# LIBDIR: where libraries are, below PREFIX; "lib" unless the system has one for each architecture.
# Without DESTDIR, which packages use, the linker is told of the library. `remove` takes away what an install of the same
# version put there, and folders that are ours alone; /etc/tensorcast and what the daemon wrote stay.
set -euo pipefail
build=$1
root=${DESTDIR:-}${PREFIX:?} libdir=${LIBDIR:-lib} major=${VERSION:?}
major=${major%%.*}

action=${2:-install}
put() { # put MODE SOURCE TARGET
  if [ "$action" = remove ]; then rm -f "$root/$3"; else install -D -m "$1" "$2" "$root/$3"; fi
}
link() { # link TO TARGET
  if [ "$action" = remove ]; then rm -f "$root/$2"; else ln -sf "$1" "$root/$2"; fi
}
fill() { # fill SOURCE TARGET [SED OPTION...]: a template, with @PREFIX@, @LIBDIR@ and @VERSION@ replaced
  local source=$1 target=$root/$2
  shift 2
  if [ "$action" = remove ]; then rm -f "$target"; return; fi
  sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@VERSION@|$VERSION|g" "$@" "$source" | install -D -m 644 /dev/stdin "$target"
}
complete() { # complete SHELL TARGET: written by the command, which knows its options
  if [ "$action" = remove ]; then rm -f "$root/$2"; return; fi
  "$build/tensorcast" completion "$1" | install -D -m 644 /dev/stdin "$root/$2"
}

put 755 "$build/tensorcastd" bin/tensorcastd
put 755 "$build/tensorcast" bin/tensorcast
put 755 "$build/libtensorcast.so" "$libdir/libtensorcast.so.$VERSION"
link "libtensorcast.so.$VERSION" "$libdir/libtensorcast.so.$major"
link "libtensorcast.so.$major" "$libdir/libtensorcast.so"
put 644 "$build/libtensorcast.a" "$libdir/libtensorcast.a"
for plugin in cuda etcd; do
  file=$build/plugins/tensorcast-$plugin.so
  if [ -e "$file" ] || [ "$action" = remove ]; then put 755 "$file" "lib/tensorcast/plugins/tensorcast-$plugin.so"; fi
done
put 644 client/tensorcast.h include/tensorcast.h
fill config/tensorcast.pc.in "$libdir/pkgconfig/tensorcast.pc"
for page in docs/man/*.[1-8]; do put 644 "$page" "share/man/man${page##*.}/$(basename "$page")"; done
complete bash share/bash-completion/completions/tensorcast
complete zsh share/zsh/site-functions/_tensorcast
complete fish share/fish/vendor_completions.d/tensorcast.fish
put 644 config/store_daemon_config.yaml share/doc/tensorcast/store_daemon_config.yaml
put 644 config/tensorcast.logrotate share/doc/tensorcast/tensorcast.logrotate
put 644 config/tensorcastd-cuda.conf share/doc/tensorcast/tensorcastd-cuda.conf
fill config/tensorcastd.service lib/systemd/system/tensorcastd.service
# The same for one group of users: configuration, sockets, state and logs by the group's name.
fill config/tensorcastd.service lib/systemd/system/tensorcastd@.service -e '/^Also=/d' -e 's|^Group=.*|Group=%i|' \
  -e 's|^\(Description=.*\)|\1, for the group %i|' -e 's|/etc/tensorcast/store_daemon_config.yaml|/etc/tensorcast/%i.yaml|' \
  -e 's|^\([A-Z][a-z]*Directory\)=tensorcast$|\1=tensorcast-%i|' -e '/^RuntimeDirectoryPreserve=/d' -e '/sockets of tensorcastd.socket/d'
# Beside the first one at the same sockets, for an upgrade in which no load has to wait.
fill config/tensorcastd.service lib/systemd/system/tensorcastd-next.service -e '/^Also=/d' -e '/^\[Install\]/,$d' \
  -e 's|^\(Description=.*\)|\1, while tensorcastd.service is restarted|' -e 's|^\[Service\]|&\nSockets=tensorcastd.socket|'
fill config/tensorcastd-user.service share/systemd/user/tensorcastd.service # also below ~/.local systemd looks there
fill config/tensorcastd.socket lib/systemd/system/tensorcastd.socket
put 644 config/tensorcast.sysusers lib/sysusers.d/tensorcast.conf
put 644 config/tensorcast.tmpfiles lib/tmpfiles.d/tensorcast.conf
if [ "$action" = remove ]; then
  for folder in lib/tensorcast/plugins lib/tensorcast share/doc/tensorcast; do
    if [ -d "$root/$folder" ]; then rmdir --ignore-fail-on-non-empty "$root/$folder"; fi
  done
fi
# Programs find the library by the linker's cache, which only root writes.
if [ -z "${DESTDIR:-}" ]; then
  if [ "$(id -u)" = 0 ]; then PATH=$PATH:/sbin:/usr/sbin ldconfig
  elif [ "$action" = install ]; then echo "programs that link libtensorcast need LD_LIBRARY_PATH=$root/$libdir"
  fi
fi
