"""What each directive of the shipped units does. A directive without a row, or a row that holds without its directive, fails.

`facts` is what probe.py has found in the sandbox of the unit, `properties` what systemd tells of it. Rows that are only a property say
what cannot be seen from inside: another directive does the same, or it takes a process that hangs.
"""
import errno
import json
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

INSTALLED = Path("/usr/local/lib/systemd/system")
STATE = Path("/var/lib/tensorcast")
CAP_LEASE = f"{1 << 28:016x}"
PROPERTIES = set()  # the rows that are one
FORBIDDEN = ("@clock @cpu-emulation @debug @keyring @mount @obsolete @privileged @raw-io @resources").split()


def is_property(name, value):
    """Needs no report of probe.py."""
    row = lambda facts, properties: properties.get(name) == value  # noqa: E731
    PROPERTIES.add(row)
    return row


def has_pages(facts, properties):
    pages = re.findall(r"man:([\w.]+)\((\d)\)", properties["Documentation"])
    return pages and all(Path(f"/usr/local/share/man/man{section}/{name}.{section}").exists() for name, section in pages)


def is_limit(shown, name, value):
    """Of a process, unless not even root may raise limits on this machine."""
    may_raise = int(re.search(r"CapBnd:\s*(\w+)", Path("/proc/1/status").read_text())[1], 16) >> 24 & 1  # CAP_SYS_RESOURCE
    wanted = {"infinity": "unlimited"}.get(value, value)
    if not may_raise:
        return is_property(name, value)
    return lambda facts, properties: facts["limits"][shown] == [wanted] * 2


SANDBOX = {  # directive: whether it does what it is for
    "OOMPolicy": is_property("OOMPolicy", "continue"),
    "TasksMax": is_property("TasksMax", "4096"),
    "TimeoutStopSec": is_property("TimeoutStopUSec", "30s"),
    "After": lambda facts, properties: {"local-fs.target", "remote-fs.target"} <= set(properties["After"].split()),
    "Description": lambda facts, properties: "model weights" in properties["Description"],
    "Documentation": has_pages,
    "User": lambda facts, properties: facts["uid"] == pwd.getpwnam("tensorcast").pw_uid,
    "Group": is_property("Group", "tensorcast"),
    "RuntimeDirectory": is_property("RuntimeDirectory", "tensorcast"),
    "StateDirectory": lambda facts, properties: facts["writes"]["/var/lib/tensorcast"] == 0,
    "LogsDirectory": lambda facts, properties: facts["writes"]["/var/log/tensorcast"] == 0,
    "StateDirectoryMode": is_property("StateDirectoryMode", "0700"),
    "LogsDirectoryMode": is_property("LogsDirectoryMode", "0700"),
    "RuntimeDirectoryPreserve": is_property("RuntimeDirectoryPreserve", "yes"),
    "LimitNOFILE": is_limit("Max open files", "LimitNOFILE", "1048576"),
    "LimitMEMLOCK": is_limit("Max locked memory", "LimitMEMLOCK", "infinity"),
    "LimitCORE": is_limit("Max core file size", "LimitCORE", "0"),
    "CapabilityBoundingSet": lambda facts, properties: facts["status"]["CapBnd"] == CAP_LEASE,
    "AmbientCapabilities": lambda facts, properties: facts["status"]["CapAmb"] == CAP_LEASE,
    "NoNewPrivileges": is_property("NoNewPrivileges", "yes"),
    "ProtectSystem": lambda facts, properties: facts["writes"]["/usr/open"] == facts["writes"]["/srv/open"] == errno.EROFS,
    "ProtectHome": lambda facts, properties: (properties["ProtectHome"] == "read-only" and facts["is_seen"]["/home/open"] and
                                              facts["writes"]["/home/open"] == errno.EROFS),
    "PrivateTmp": lambda facts, properties: not facts["is_seen"]["/tmp/outside"],
    "PrivateMounts": is_property("PrivateMounts", "yes"),
    "PrivateDevices": lambda facts, properties: not facts["is_seen"]["/dev/outside"],
    "ProtectKernelTunables": is_property("ProtectKernelTunables", "yes"),
    "ProtectKernelModules": lambda facts, properties: not facts["is_seen"]["/usr/lib/modules/outside"],
    "ProtectKernelLogs": is_property("ProtectKernelLogs", "yes"),
    "ProtectControlGroups": is_property("ProtectControlGroups", "yes"),
    "ProtectProc": lambda facts, properties: not facts["is_seen"]["/proc/1/status"],
    "ProtectClock": is_property("ProtectClock", "yes"),
    "ProtectHostname": lambda facts, properties: facts["uts"] != os.readlink("/proc/1/ns/uts"),
    "RestrictAddressFamilies": lambda facts, properties: facts["families"] == [0, 0, 0] and facts["other_family"] == errno.EAFNOSUPPORT,
    "RestrictNamespaces": lambda facts, properties: facts["name_space"] == errno.EPERM,
    "RestrictRealtime": is_property("RestrictRealtime", "yes"),
    "RestrictSUIDSGID": lambda facts, properties: facts["set_group_id"] == errno.EPERM and facts["openat2"] == errno.ENOSYS,
    "LockPersonality": lambda facts, properties: facts["personality"] == errno.EPERM,
    "MemoryDenyWriteExecute": lambda facts, properties: facts["executable"] == errno.EPERM,
    "SystemCallArchitectures": is_property("SystemCallArchitectures", "native"),
    "SystemCallFilter": lambda facts, properties: (all(facts["calls"][name] == errno.EPERM for name in FORBIDDEN) and
                                                   not {facts["calls"]["lchown"], facts["calls"]["setpriority"]} & {errno.EPERM}),
    "SystemCallErrorNumber": lambda facts, properties: facts["calls"]["@clock"] == errno.EPERM,  # without it, the call kills
}
# steps.py has a step for each of these: it takes the real service, or its sockets
LIFE = {"Type", "ExecStart", "ExecReload", "ExecStopPost", "Restart", "RestartSec", "RestartPreventExitStatus", "StartLimitIntervalSec",
        "WatchdogSec", "RemoveIPC", "WantedBy", "Also", "ListenStream", "ListenSequentialPacket", "SocketMode", "SocketGroup", "RemoveOnStop"}


def directives(unit):
    """[(key, line)] of an installed unit."""
    lines = [line for line in (INSTALLED / unit).read_text().splitlines() if re.match(r"\w+=", line)]
    return [(line.partition("=")[0], line) for line in lines]


def probe_unit(number, without):
    """The unit with probe.py in the daemon's place and one line left out."""
    name, out, lines = f"probe-{number}", STATE / f"probe-{number}.json", []
    for line in (INSTALLED / "tensorcastd.service").read_text().splitlines():
        key = line.partition("=")[0]
        if line == without or key in LIFE:
            continue
        lines.append(line)
        if line == "[Service]":
            lines += ["Type=oneshot", f"ExecStart=/usr/bin/python3 /usr/local/share/probe.py {out}"]
    Path(f"/run/systemd/system/{name}.service").write_text("\n".join(lines) + "\n")
    return name, out


def properties_of(unit):
    said = subprocess.check_output(["systemctl", "show", unit], text=True)
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def holds(key, out, properties):
    try:
        return bool(SANDBOX[key](None if SANDBOX[key] in PROPERTIES else json.loads(out.read_text()), properties))
    except (OSError, ValueError, KeyError):
        return False  # it could not even write its report


def check_sandbox():
    """The service is stopped. Returns what is wrong, as texts."""
    wrong = [f"{unit}: {key}= has no row in units.py" for unit in ("tensorcastd.service", "tensorcastd.socket")
             for key, _ in directives(unit) if key not in SANDBOX and key not in LIFE]
    known = {key for unit in ("tensorcastd.service", "tensorcastd.socket") for key, _ in directives(unit)}
    wrong += [f"{key}= is in no unit, and has a row" for key in {*SANDBOX, *LIFE} - known]
    for folder in ("/usr/open", "/home/open", "/srv/open", "/usr/lib/modules/outside"):
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o1777)
    for path in ("/tmp/outside", "/dev/outside"):
        Path(path).touch()
    shutil.copy(Path(__file__).parent / "probe.py", "/usr/local/share/probe.py")
    os.chmod("/usr/local/share/probe.py", 0o644)
    lines = [("", None)] + [(key, line) for key, line in directives("tensorcastd.service") if key in SANDBOX]
    units = [(key, line, *probe_unit(i, line)) for i, (key, line) in enumerate(lines)]
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    subprocess.run(["systemctl", "start", *(name for key, _, name, _ in units if SANDBOX.get(key) not in PROPERTIES)], capture_output=True)
    _, _, whole_name, whole_out = units[0]
    whole = properties_of(whole_name)
    wrong += [f"{key}= does not do what it is for" for key in {key for key, _ in lines[1:]} if not holds(key, whole_out, whole)]
    wrong += [f"{line}: its row holds without it" for key, line, name, out in units[1:] if holds(key, out, properties_of(name))]
    subprocess.run(["systemctl", "kill", "--signal=KILL", *(name for _, _, name, _ in units)], capture_output=True)
    return wrong
