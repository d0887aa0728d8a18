#!/usr/bin/env bash
# Puts what was built where a Debian system expects it; `make install` calls it.
# usage: DESTDIR=... PREFIX=... VERSION=... install.sh BUILD_DIR
set -euo pipefail
build=$1
root=${DESTDIR:-}${PREFIX:?} major=${VERSION:?}
major=${major%%.*}

put() { # put MODE SOURCE TARGET
  install -D -m "$1" "$2" "$root/$3"
}
fill() { # fill SOURCE TARGET: a template, with @PREFIX@ and @VERSION@ replaced
  sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@VERSION@|$VERSION|g" "$1" | install -D -m 644 /dev/stdin "$root/$2"
}

put 755 "$build/tensorcastd" bin/tensorcastd
put 755 "$build/tensorcast" bin/tensorcast
put 755 "$build/libtensorcast.so" "lib/libtensorcast.so.$VERSION"
ln -sf "libtensorcast.so.$VERSION" "$root/lib/libtensorcast.so.$major"
ln -sf "libtensorcast.so.$major" "$root/lib/libtensorcast.so"
put 644 "$build/libtensorcast.a" lib/libtensorcast.a
if [ -e "$build/plugins/tensorcast-cuda.so" ]; then put 755 "$build/plugins/tensorcast-cuda.so" lib/tensorcast/plugins/tensorcast-cuda.so; fi
put 644 client/tensorcast.h include/tensorcast.h
fill config/tensorcast.pc.in lib/pkgconfig/tensorcast.pc
for page in docs/man/*.[1-8]; do put 644 "$page" "share/man/man${page##*.}/$(basename "$page")"; done
put 644 docs/completion/tensorcast.bash share/bash-completion/completions/tensorcast
put 644 config/store_daemon_config.yaml share/doc/tensorcast/store_daemon_config.yaml
fill config/tensorcastd.service lib/systemd/system/tensorcastd.service
fill config/tensorcastd.socket lib/systemd/system/tensorcastd.socket
put 644 config/tensorcast.sysusers lib/sysusers.d/tensorcast.conf
