"""Follows the ```sh blocks of docs/operations.md and docs/upgrade.md word for word on a booted system, as root, and uses what was
installed as its users do.

Each step is a function of this file, in order; `steps.py NAME ...` runs those up to the last that is named. Commands of the page are run
as they stand there, and one that no step runs fails, as does a directive of the units that no step looks at (units.py).
"""
import ctypes
import hashlib
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import units
from stores import Stores

SOURCE = Path(__file__).resolve().parents[2]
CONFIG = Path("/etc/tensorcast/store_daemon_config.yaml")
LOG = Path("/var/log/tensorcast/daemon.log")
PAGES = ("operations.md", "upgrade.md")
SOCKETS = {"/run/tensorcast/daemon.sock": "stream", "/run/tensorcast/daemon.handoff": "seqpacket"}
SERVICE, SOCKET = "tensorcastd.service", "tensorcastd.socket"
MODEL = {"w": np.arange(5000, dtype=np.float32), "b": np.arange(77, dtype=np.int8)}
stores = Stores()


# --- the page ---

def page_commands():
    text = "".join((SOURCE / "docs" / page).read_text() for page in PAGES)
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    return [re.sub(r"\s+# .*", "", line).strip() for block in blocks for line in block.splitlines() if line.strip() and line[0] != "#"]


LEFT = page_commands()


def say(command, by=None):
    """Runs a command of the page, or what stands for it here."""
    assert command in LEFT, f"{PAGES} do not say: {command}\nit says: {LEFT}"
    LEFT.remove(command)
    return sh(by if by is not None else command)


# --- tools ---

def sh(command, user=None, fails=False, **options):
    words = ["/usr/sbin/runuser", "-u", user, "--", "bash", "-c", command] if user else ["bash", "-c", command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd="/", **options)
    assert (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{journal()[-3000:]}"
    return done.stdout + done.stderr


def soon(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def journal():
    return subprocess.run(["journalctl", "--no-pager", "-o", "cat", "-u", "tensorcastd"], capture_output=True, text=True).stdout


def told(words):
    """Whether the journal has it, now or soon: the daemon's thread that writes, and the journal, are behind what they tell of."""
    return soon(lambda: words in journal())


def times_of(words):
    """When the journal got each line that has them, in seconds."""
    lines = map(json.loads, subprocess.check_output(["journalctl", "--no-pager", "-o", "json", "-u", "tensorcastd"], text=True).splitlines())
    return [int(line["__MONOTONIC_TIMESTAMP"]) / 1e6 for line in lines if words in str(line["MESSAGE"])]


def shown(name, unit=SERVICE):
    return subprocess.check_output(["systemctl", "show", "--value", "-p", name, unit], text=True).strip()


def main_pid():
    return int(shown("MainPID"))


def configure(**changes):
    """Writes the sample configuration with lines `key: value` changed."""
    text = (Path("/usr/local/share/doc/tensorcast") / CONFIG.name).read_text()
    for key, value in changes.items():
        section, _, key = key.rpartition("__")
        begin = re.search(rf"^ *{section}:$", text, re.M).end() if section else 0
        head, tail = text[:begin], text[begin:]
        tail, n = re.subn(rf"^( *){key}: .*$", rf"\g<1>{key}: {value}", tail, count=1, flags=re.M)
        assert n == 1, (section, key)
        text = head + tail
    CONFIG.write_text(text)


SETTINGS = {"s3__endpoint": stores.url("s3"), "activations__roots": "[/data]", "disk__trusted_roots": "[/models, /data]",
            "memory__host_budget": "512MiB"}


def loads(reference="/models/tiny", user="ann"):
    """Whether that user gets every byte."""
    tensors = json.loads(sh(f"tensorcast load {reference} --digest --json", user))["tensors"]
    return {t["name"]: t["sha256"] for t in tensors} == {k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in MODEL.items()}


def mode(path):
    status = os.stat(path)
    return f"{status.st_mode & 0o7777:04o} {pwd.getpwuid(status.st_uid).pw_name}"


# --- steps ---

def install():
    wanted = say("bash setup/setup.sh", "true"), say("make && make install", "true")  # done by run.sh: what is built here is installed
    assert wanted == ("", "") and Path("/usr/local/bin/tensorcastd").exists()
    say("systemd-sysusers")
    say("install -D -m 644 /usr/local/share/doc/tensorcast/store_daemon_config.yaml /etc/tensorcast/store_daemon_config.yaml")
    sh("useradd -m ann && useradd -m bob")
    say("systemctl daemon-reload && systemctl enable --now tensorcastd.socket tensorcastd.service")
    say("usermod -aG tensorcast USER", "usermod -aG tensorcast ann")
    assert "tensorcast" in say("tensorcast status")
    assert shown("ActiveState") == "active" == shown("ActiveState", SOCKET) and shown("Type") == "notify" == shown("Type")
    wants = Path("/etc/systemd/system")
    assert (wants / f"multi-user.target.wants/{SERVICE}").is_symlink() and (wants / f"sockets.target.wants/{SOCKET}").is_symlink()
    sh(f"systemctl disable {SERVICE}")  # and, by Also=, the other
    assert not list(wants.glob("*.wants/tensorcastd.*"))
    sh(f"systemctl enable {SERVICE}")
    assert sorted(path.name for path in wants.glob("*.wants/tensorcastd.*")) == [SERVICE, SOCKET]


def sockets():
    for path, kind in SOCKETS.items():
        status = os.stat(path)
        assert f"{status.st_mode & 0o777:04o}" == "0660" and status.st_gid == pwd.getpwnam("tensorcast").pw_gid, (path, oct(status.st_mode))
        assert kind in sh("cat /proc/net/unix").replace(" 0001 ", " stream ").replace(" 0005 ", " seqpacket ")
    assert mode("/run/tensorcast")[:4] == "0755" and mode("/var/lib/tensorcast") == "0700 tensorcast" == mode("/var/log/tensorcast")


def load_from_a_disk():
    os.makedirs("/models/tiny")
    save_file(MODEL, "/models/tiny/model.safetensors")  # which makes it for its owner alone
    sh("tensorcast load /models/tiny", "ann", fails=True)
    os.chmod("/models/tiny/model.safetensors", 0o644)
    os.symlink("tiny", "/models/link")
    sh(f"{sys.executable} -c 'import tensorcast_client as tc; assert set(tc.load_file(\"/models/tiny\", framework=\"numpy\")) == set(\"wb\")'", "ann")
    assert loads() and loads("/models/link") and told("event=openat2_refused")
    sh("tensorcast load /etc", "ann", fails=True)


def a_user_outside_the_group_gets_nothing():
    said = sh("tensorcast load /models/tiny", "bob", fails=True)
    assert "PERMISSION_DENIED" in said and "usermod -aG tensorcast bob" in said, said


def load_from_a_store():
    stores.world.aws["AKFAKE"] = {"secret": "fakesecret"}
    stores.world.preload("s3", "b/tiny", "/models/tiny")
    stores.world.bucket("s3", "acts")
    folder = Path("/etc/systemd/system/tensorcastd.service.d")
    folder.mkdir(exist_ok=True)
    (folder / "keys.conf").write_text("[Service]\nEnvironment=AWS_ACCESS_KEY_ID=AKFAKE AWS_SECRET_ACCESS_KEY=fakesecret AWS_REGION=us-east-1\n")
    configure(**SETTINGS)
    sh("systemctl daemon-reload && systemctl restart tensorcastd")
    assert loads("s3://b/tiny") and loads()


def export():
    sh("tensorcast export /models/tiny --out /home/ann/out", "ann")
    got = load_file("/home/ann/out/model.safetensors")
    assert all(got[name].tobytes() == value.tobytes() for name, value in MODEL.items())


APPEND = """import numpy as np, tensorcast_client as tc
with tc.connect().activation_store("disk:/data/run", host=0, upload="s3://acts/run") as store:
    for i in range(20):
        store.append(i, {3: np.arange(i, i + 500, dtype=np.float32)})
"""


def append():
    """As the page says: not before the unit may write there."""
    os.makedirs("/data", exist_ok=True)
    program = f"{sys.executable} -c '{APPEND}'"
    assert told("activation_root_not_writable")
    assert "READ_ONLY" in sh(program, fails=True) or "EROFS" in sh(program, fails=True)
    say("install -d -o tensorcast -g tensorcast /data")
    say("systemctl edit tensorcastd", "mkdir -p /etc/systemd/system/tensorcastd.service.d && "
        "printf '[Service]\\nReadWritePaths=/data\\n' >/etc/systemd/system/tensorcastd.service.d/override.conf && systemctl daemon-reload")
    say("systemctl restart tensorcastd")
    said = sh(program, "ann", fails=True)  # the daemon writes for its own user and root alone
    assert "tensorcastd --user" in said and not os.path.exists("/data/run"), said
    sh(program)


def upload():
    def names():
        return {key for key, versions in list(stores.world.bucket("s3", "acts").keys.items()) if versions[-1] is not None}

    wanted = {"run/host_000/segment_000001.safetensors", "run/host_000/manifest.json"}
    assert soon(lambda: wanted <= names()), (names(), journal()[-3000:])
    sent = stores.world.bucket("s3", "acts").keys["run/host_000/segment_000001.safetensors"][-1].data
    assert sent == Path("/data/run/host_000/segment_000001.safetensors").read_bytes()


def users_read_stores():
    sh("tensorcast activations verify disk:/data/run", "ann")
    sh("cat /data/run/host_000/*.safetensors /data/run/host_000/manifest.json >/dev/null", "ann")


def journal_priorities():
    def messages(priority):
        return sh(f"journalctl --no-pager -o cat -u tensorcastd -p {priority}")

    assert told("event=load_failed") and "event=load_failed" in messages("warning..info")
    assert "event=ready" in messages("info..info") and "<6>" not in journal()
    assert "event=ready" in sh("journalctl --no-pager -o cat -u tensorcastd TENSORCAST_EVENT=ready")
    assert "event=ready" not in messages("warning") and "event=activation_root_not_writable" in messages("warning")


def reload_():
    configure(**{**SETTINGS, "memory__host_budget": "600MiB"})
    sh("systemctl reload tensorcastd")
    assert soon(lambda: "key=memory.host_budget" in journal()) and loads()


def reload_with_a_mistake():
    before = main_pid()
    CONFIG.write_text(CONFIG.read_text().replace("host_budget", "host_bugdet"))
    sh("systemctl reload tensorcastd", fails=True)
    assert shown("ActiveState") == "active" and main_pid() == before and told("did you mean memory.host_budget") and loads()
    assert "config_reload_refused" not in journal()  # it was never asked


def restart_with_a_mistake():
    """Fails once and for all, with the sockets there for clients that wait, and the right file starts it at once."""
    sh("systemctl restart tensorcastd", fails=True)
    assert shown("Result") == "exit-code" and shown("ExecMainStatus") == "78" and shown("NRestarts") == "0" and shown("ActiveState") == "failed"
    assert shown("ActiveState", SOCKET) == "active"
    waiting = subprocess.Popen(["runuser", "-u", "ann", "--", "tensorcast", "load", "/models/tiny"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    starts = len(times_of("did you mean"))
    assert soon(lambda: len(times_of("did you mean")) > starts + 2)
    first, second = times_of("did you mean")[starts + 1:starts + 3]  # the one before may be of the restart
    assert second - first > 1.5  # not as fast as it can fail
    assert shown("ActiveState", SOCKET) == "active"
    configure(**SETTINGS)
    sh("systemctl restart tensorcastd")
    assert waiting.wait(120) == 0, waiting.stdout.read()
    assert shown("ActiveState") == "active" == shown("ActiveState", SOCKET) and loads() and not sh("systemctl --failed --quiet")


def crash():
    before, begin = main_pid(), time.monotonic()
    os.kill(before, signal.SIGSEGV)
    assert soon(lambda: shown("ActiveState") == "active" and main_pid() not in (0, before)) and time.monotonic() - begin > 2.5
    assert shown("NRestarts") == "1" and loads()
    assert "WATCHDOG_USEC=60000000" in Path(f"/proc/{main_pid()}/environ").read_text()  # WatchdogSec=; what it beats, tests/e2e tests


def many_restarts():
    """More than systemd allows in ten seconds by default; the limit would end the socket, too."""
    for _ in range(7):
        sh("systemctl restart tensorcastd")
    assert shown("ActiveState", SOCKET) == "active" and loads()


def log_file():
    say("install -D -m 644 /usr/local/share/doc/tensorcast/tensorcast.logrotate /etc/logrotate.d/tensorcast")
    configure(**SETTINGS, logging__file=str(LOG))
    say("systemctl reload tensorcastd")
    assert soon(LOG.exists) and mode(LOG) == "0640 tensorcast" and loads()
    assert soon(lambda: "event=load_done" in LOG.read_text())
    sh("logrotate --force /etc/logrotate.d/tensorcast")
    assert soon(lambda: LOG.with_name("daemon.log.1").exists() and LOG.exists()) and mode(LOG) == "0640 tensorcast" and loads()
    assert soon(lambda: "event=load_done" in LOG.read_text())


def socket_activation():
    sh("systemctl stop tensorcastd.service")
    assert shown("ActiveState") == "inactive" and all(map(os.path.exists, SOCKETS)) and loads()
    assert soon(lambda: shown("ActiveState") == "active")  # a load may be over before systemd has heard that the daemon is ready


def upgrade_without_a_gap():
    """No load fails, or gets bytes of another model, while daemons follow each other."""
    stop, errors, done = threading.Event(), [], []

    def load():
        while not stop.is_set():
            try:
                assert loads()
                done.append(main_pid())
            except Exception as error:  # noqa: BLE001  the step tells
                errors.append(error)
                return

    def more():
        n = len(done)
        assert soon(lambda: errors or len(done) > n + 5, 240) and not errors, errors

    threads = [threading.Thread(target=load, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    before, logged = main_pid(), len(LOG.read_text())
    say("cp -rT /etc/systemd/system/tensorcastd.service.d /etc/systemd/system/tensorcastd-next.service.d")
    more()
    say("systemctl daemon-reload && systemctl start tensorcastd-next")
    assert "override.conf" in shown("DropInPaths", "tensorcastd-next.service")
    more()
    say("systemctl restart tensorcastd")
    more()
    say("systemctl stop tensorcastd-next")
    more()
    sh("systemctl restart tensorcastd")  # alone, as at the top of the section: loads wait for the new daemon
    more()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert main_pid() not in (0, before) and not errors and shown("ActiveState", "tensorcastd-next.service") == "inactive", errors
    assert soon(lambda: LOG.read_text()[logged:].count("event=socket_taken_over") == 2), LOG.read_text()[logged:]
    said = LOG.read_text()[logged:]
    assert not re.findall("event=(?:request_failed|load_failed).*", said), said
    sh("rm -r /etc/systemd/system/tensorcastd-next.service.d")


def credentials():
    """Secrets that root alone may read reach the daemon through systemd, as the page says."""
    page = (SOURCE / "docs/operations.md").read_text()
    unit = re.search(r"^```\n(\[Service\]\nLoadCredential=.*?)```", page, re.M | re.S)[1]
    Path("/etc/tensorcast/cluster.key").write_bytes(os.urandom(32))
    Path("/etc/tensorcast/aws-credentials").write_text("[default]\naws_access_key_id = AKFAKE\naws_secret_access_key = fakesecret\n")
    sh("chmod 600 /etc/tensorcast/cluster.key /etc/tensorcast/aws-credentials")
    keys = Path("/etc/systemd/system/tensorcastd.service.d/keys.conf")
    before = keys.read_text()
    keys.write_text(unit + "Environment=AWS_REGION=us-east-1\n")
    extra = CONFIG.with_suffix(".d") / "hosts.yaml"
    extra.parent.mkdir()
    extra.write_text("hosts: {etcd: {endpoints: ['http://127.0.0.1:1']}, listen: '0.0.0.0:0', "
                     "cluster_key_file: $CREDENTIALS_DIRECTORY/cluster.key}\n")
    sh("systemctl daemon-reload && systemctl restart tensorcastd")
    assert loads("s3://b/tiny")
    assert soon(lambda: f"profile default of /run/credentials/{SERVICE}/aws" in LOG.read_text())
    sh("systemctl reload tensorcastd")  # which checks the configuration first
    for path in ("/etc/tensorcast/cluster.key", "/etc/tensorcast/aws-credentials", extra):
        os.unlink(path)
    extra.parent.rmdir()
    keys.write_text(before)
    sh("systemctl daemon-reload && systemctl restart tensorcastd")


def sandbox():
    left = Path("/dev/shm/left")
    left.touch()
    os.chown(left, pwd.getpwnam("tensorcast").pw_uid, -1)
    sh("systemctl stop tensorcastd.socket tensorcastd.service")
    assert not left.exists()  # RemoveIPC=
    assert os.path.isdir("/run/tensorcast") and not any(map(os.path.exists, SOCKETS))  # RemoveOnStop=
    made = re.findall(r"event=sandbox .*", journal())
    assert made and all(re.match(r"event=sandbox mode=on seccomp=true landlock=[1-9]", line) for line in made), made  # the daemon's own
    wrong = units.check_sandbox()
    assert not wrong, "\n".join(wrong)
    sh("systemctl start tensorcastd.socket")
    assert loads()


def user_unit():
    """A user's own daemon, installed below the home, as a service of the user's."""
    sh("systemctl stop tensorcastd.socket tensorcastd.service")
    uid = pwd.getpwnam("bob").pw_uid
    install = f"cd {SOURCE} && DESTDIR= PREFIX=/home/bob/.local VERSION=$(cat VERSION) bash config/install.sh build"
    said = sh(install, "bob")
    assert "ldconfig" not in said, said
    sh(f"systemctl start user@{uid}.service")
    env = {**os.environ, "HOME": "/home/bob", "XDG_RUNTIME_DIR": f"/run/user/{uid}", "PATH": "/home/bob/.local/bin:/usr/bin:/bin"}
    sh("mkdir -p /home/bob/m && cp /models/tiny/* /home/bob/m && systemctl --user enable --now tensorcastd", "bob", env=env)
    sh("tensorcast load ~/m", "bob", env=env)
    sh("mkdir -p ~/.config/tensorcast && echo 'memory: {host_bugdet: 1GiB}' >~/.config/tensorcast/store_daemon_config.yaml", "bob", env=env)
    sh("systemctl --user reload tensorcastd", "bob", fails=True, env=env)
    sh("systemctl --user disable --now tensorcastd", "bob", env=env)
    sh(f"{install} remove", "bob")
    sh(f"systemctl stop user@{uid}.service && systemctl start tensorcastd.socket")


def uninstall():
    say("systemctl disable --now tensorcastd.service tensorcastd.socket")
    say("make uninstall && systemctl daemon-reload", f"cd {SOURCE} && DESTDIR= PREFIX=/usr/local VERSION=$(cat VERSION) bash config/install.sh "
        "build remove && systemctl daemon-reload")
    assert shown("LoadState") == "not-found" == shown("LoadState", SOCKET) and shown("ActiveState") == "inactive"
    assert not list(Path("/etc/systemd/system").glob("*.wants/tensorcastd.*")) and not Path("/usr/local/bin/tensorcastd").exists()
    assert not [path for path in Path("/usr/local").rglob("*tensorcast*") if not path.is_dir()]


def packages_install():
    """Two commands from a bare system to a load."""
    for path in ("/etc/tensorcast", "/var/lib/tensorcast", "/etc/systemd/system/tensorcastd.service.d", "/etc/logrotate.d/tensorcast", LOG.parent):
        sh(f"rm -rf {path}")
    sh("gpasswd -d ann tensorcast && userdel tensorcast && systemctl reset-failed")
    say("make deb", "true")  # done by run.sh
    say("apt install ./build/deb/tensorcast_*.deb", "apt-get install -y /made/tensorcast_*.deb")
    assert loads(user=None) and shown("ActiveState") == "active" == shown("ActiveState", SOCKET)
    say("usermod -aG tensorcast USER", "usermod -aG tensorcast ann")
    assert "tensorcast" in say("tensorcast status") and loads()
    assert CONFIG.read_text() == (SOURCE / "config" / CONFIG.name).read_text()
    sh("apt-get install -y /made/*.deb")
    ctypes.CDLL("/usr/lib/tensorcast/plugins/tensorcast-etcd.so")  # its libraries are there
    sh("systemctl daemon-reload")
    assert all("50-cuda.conf" in shown("DropInPaths", unit) for unit in (SERVICE, "tensorcastd-next", "tensorcastd@any"))
    assert shown("PrivateDevices") == "no" and mode("/run/tensorcast") == "0755 tensorcast"
    for page in ("tensorcast.1", "tensorcastd.8", "store_daemon_config.yaml.5"):
        assert Path(f"/usr/share/man/man{page[-1]}/{page}.gz").exists()
    text = (Path("/usr/share/doc/tensorcast") / "README.md").read_text()
    assert all((Path("/usr/share/doc/tensorcast") / name).exists() for name in re.findall(r"\]\((docs/\w+\.md)", text))


def packages_upgrade():
    """A later build: the daemon is another, the sockets are those of before, and so is what the operator wrote."""
    CONFIG.write_text(CONFIG.read_text().replace("host_budget: auto", "host_budget: 300MiB"))
    before, sockets = main_pid(), [os.stat(path).st_ino for path in SOCKETS]
    sh("for deb in /made/*.deb; do dpkg-deb -R $deb /tmp/deb && sed -i 's/0\\.1\\.0[^)]*/&.later/' /tmp/deb/DEBIAN/control && "
       "dpkg-deb -b /tmp/deb $deb.later.deb && rm -r /tmp/deb; done")
    waiting = subprocess.Popen(["bash", "-c", "for i in $(seq 100); do tensorcast load /models/tiny || exit; done"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    sh("apt-get install -y /made/*.later.deb")
    assert waiting.wait(300) == 0, waiting.stderr.read()
    assert ".later" in sh("dpkg-query -W -f '${Version}' tensorcast") and main_pid() != before
    assert [os.stat(path).st_ino for path in SOCKETS] == sockets and shown("ActiveState", SOCKET) == "active" and loads()
    assert "300MiB" in CONFIG.read_text() and os.listdir(CONFIG.parent) == [CONFIG.name]
    assert not sh("systemctl --failed --quiet")


def a_daemon_for_a_group():
    sh("groupadd research && useradd -G research carl && mkdir -p /srv/research && cp -r /models/tiny /srv/research && "
       "chgrp -R research /srv/research && chmod -R o-rwx,g+rX /srv/research")
    page = (SOURCE / "docs/operations.md").read_text()
    text = re.search(r"```yaml\n(server: .*?)```", page, re.S)[1]
    (CONFIG.parent / "research.yaml").write_text(text.replace("64GiB", "300MiB"))
    say("systemctl enable --now tensorcastd@research")
    to_it = "TENSORCAST_SOCKET=/run/tensorcast-research/daemon.sock tensorcast "
    say(f"{to_it}status")
    sh(f"{to_it}load /srv/research/tiny", "carl")
    assert "SOCKET_FORBIDDEN" in sh(f"{to_it}load /srv/research/tiny --json", "ann", fails=True)
    sh("tensorcast load /srv/research/tiny", "ann", fails=True)
    assert mode("/run/tensorcast-research/daemon.sock") == "0660 tensorcast" and mode("/var/lib/tensorcast-research") == "0700 tensorcast"
    sh("systemctl reload tensorcastd@research")
    sh("systemctl disable --now tensorcastd@research && rm -r /etc/tensorcast/research.yaml /var/l*/tensorcast-research")
    assert loads() and not os.path.exists("/run/tensorcast-research")


def packages_purge():
    sh("apt-get purge -y 'tensorcast*' 'libtensorcast*'")
    assert shown("LoadState") == "not-found" == shown("LoadState", SOCKET) and not os.path.exists(next(iter(SOCKETS)))
    left = sh("find / -xdev -name '*tensorcast*' -not -path '/home/*' -not -path '/made/*' -not -path '/var/log/*' -not -path '/var/lib/apt/*'")
    assert not left and pwd.getpwnam("tensorcast") and os.listdir("/models"), left


def wheel():
    """A user without root, where neither the packages nor `make install` have been, with nothing of the system but its C library."""
    oldest = re.search(r"with glibc (\d+\.\d+) or later", (SOURCE / "docs/operations.md").read_text())[1].replace(".", "_")
    (made,) = Path("/made").glob("*.whl")
    assert f"manylinux_{oldest}_" in made.name, f"docs/operations.md promises an older glibc than {made.name} needs"
    sh("useradd -m dora && cp -r /models/tiny /home/dora/m")
    env = {"HOME": "/home/dora", "PATH": "/home/dora/wheel/bin:/usr/bin:/bin", "PYTHONPATH": "/home/dora/wheel"}
    sh(f"{sys.executable} -m pip install -q --no-index --no-deps --no-compile --target ~/wheel /made/*.whl", "dora", env=env)
    sh("tensorcastd --user >~/daemon.log 2>&1 & for i in $(seq 1000); do tensorcast load ~/m && exit; sleep 0.1; done; exit 1",
       "dora", env=env)
    pid = sh("pgrep -u dora -x tensorcastd").strip()
    used = {Path(line.split()[-1]) for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if ".so" in line}
    ours = {path for path in used if "wheel" in str(path)}
    others = {re.match(r"[\w-]+", path.name)[0] for path in used - ours}
    assert len(ours) > 10 and others <= {"libc", "libm", "libresolv", "libz", "ld-linux-x86-64"}, used
    assert "tensorcast" in sh("tensorcast --version", "dora", env=env)
    sh(f"kill {pid}")
    assert soon(lambda: not os.path.exists(f"/proc/{pid}"))


STEPS = [install, sockets, load_from_a_disk, a_user_outside_the_group_gets_nothing, load_from_a_store, export, append, upload,
         users_read_stores, journal_priorities, reload_, reload_with_a_mistake, restart_with_a_mistake, crash, many_restarts, log_file,
         socket_activation, upgrade_without_a_gap, credentials, sandbox, user_unit, uninstall, packages_install, packages_upgrade,
         a_daemon_for_a_group, packages_purge, wheel]


def main(wanted):
    last = max((i for i, step in enumerate(STEPS) if step.__name__ in wanted), default=len(STEPS) - 1)
    for i, step in enumerate(STEPS[:last + 1]):
        begin = time.monotonic()
        try:
            step()
        except BaseException:
            traceback.print_exc()
            print(f"FAILED {step.__name__}, step {i + 1} of {len(STEPS)}")
            return 1
        print(f"{step.__name__}: passed in {time.monotonic() - begin:.1f} s", flush=True)
    if not wanted and LEFT:
        print("FAILED: no step runs these commands of the pages:", *LEFT, sep="\n  ")
        return 1
    print(f"{last + 1} passed in {time.monotonic() - START:.1f}s")
    return 0


START = time.monotonic()
sys.exit(main(sys.argv[1:]))
