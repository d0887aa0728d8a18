#!/usr/bin/env bash
# Boots a bare system with a real systemd, with what is built here installed in it, and runs steps.py there as root.
#     usage, as root: bash tests/booted/run.sh [STEP ...]       exit status: that of steps.py
# The system is an overlay over that of base.sh, has no network but loopback, and is gone afterwards. Nothing outside
# it is touched: mounts are in a name space of this script.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() { echo "SKIPPED [1] tests/booted: $*"; exit 0; }
if [ -z "${BOOTED_APART:-}" ]; then
  [ "$(id -u)" = 0 ] || skip "booting a system needs root"
  bash setup/setup.sh booted debian || skip "debootstrap and systemd-nspawn cannot be installed"
  ! systemd-detect-virt --chroot 2>/dev/null || skip "systemd-nspawn does not run in a chroot"
  unshare --mount true 2>/dev/null || skip "no name space of mounts may be made here"
  BOOTED_APART=1 exec unshare --mount --propagation private bash "$0" "$@"
fi

build=${TENSORCAST_BUILD:-build}
if [ $# = 0 ] || [[ $* = *packages* || $* = *wheel* ]]; then
  DEB_CFLAGS_APPEND="-O1 -g0" make -s deb >/dev/null # in two thirds of the time; what is tested is the packages
  make -s wheel >/dev/null
  lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs build/deb/*.deb
fi
base=$(bash tests/booted/base.sh "$build/tensorcastd" "$build/tensorcast" "$build/plugins/tensorcast-etcd.so")
work=$(mktemp -d)
trap 'umount -l "$work" 2>/dev/null || true; rmdir "$work"' EXIT
mount -t tmpfs -o mode=755 booted "$work"
mkdir "$work"/{upper,work,root,log}
root=$work/root
mount -t overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" overlay "$root"
make -s install DESTDIR="$root" PREFIX=/usr/local >"$work/log/install" 2>&1 || { cat "$work/log/install"; exit 1; }
: >"$root/etc/machine-id"
mkdir "$root/made"
find build/deb build/wheel -maxdepth 1 '(' -name '*.deb' -o -name '*.whl' ')' -exec cp -t "$root/made" {} + 2>/dev/null || true
mkdir -p "$root/source"
environment=$(dirname "$(dirname "$(realpath -s "$(cat build/test-python)")")") # where its users may read it
cat >"$root/etc/systemd/system/booted.service" <<UNIT
[Unit]
After=multi-user.target
SuccessAction=exit-force
FailureAction=exit-force
FailureActionExitStatus=1
[Service]
Type=oneshot
Environment=PYTHONPATH=/source/build/python:/source/tests/fake PYTHONDONTWRITEBYTECODE=1 HOME=/root
ExecStart=/environment/bin/python /source/tests/booted/steps.py $*
StandardOutput=file:/said
StandardError=file:/said
UNIT
mkdir -p "$root/etc/systemd/system/default.target.wants"
ln -s ../booted.service "$root/etc/systemd/system/default.target.wants/booted.service"
code=0
# Landlock is what the daemon confines itself with; nspawn's own filter does not know it
timeout -k 10 "${BOOTED_SECONDS:-300}" systemd-nspawn --quiet --boot --keep-unit --register=no --private-network --link-journal=no \
  --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
  --directory="$root" --machine="booted-$$" --bind-ro="$PWD:/source" --bind-ro="$environment:/environment" \
  systemd.mask=apt-daily.timer systemd.mask=apt-daily-upgrade.timer systemd.mask=dpkg-db-backup.timer systemd.mask=fstrim.timer \
  </dev/null >"$work/log/console" 2>&1 || code=$?
if [ -e "$root/said" ]; then cat "$root/said"; else code=1; tail -n 20 "$work/log/console"; fi
exit "$code"
