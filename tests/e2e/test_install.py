"""What `make install` puts where, and that strangers can use it: pkg-config, man, systemd, completion."""
import os
import re
import shlex
import shutil
import subprocess

import pytest

from checkpoints import blob, write
from stage import CLI, ROOT

FILES = """bin/tensorcastd bin/tensorcast lib/libtensorcast.so.0 lib/libtensorcast.so lib/libtensorcast.a include/tensorcast.h
lib/pkgconfig/tensorcast.pc share/man/man1/tensorcast.1 share/man/man8/tensorcastd.8 share/man/man5/store_daemon_config.yaml.5
share/doc/tensorcast/store_daemon_config.yaml lib/systemd/system/tensorcastd.service lib/systemd/system/tensorcastd.socket
lib/systemd/system/tensorcastd@.service lib/systemd/system/tensorcastd-next.service lib/sysusers.d/tensorcast.conf
lib/tmpfiles.d/tensorcast.conf share/systemd/user/tensorcastd.service share/doc/tensorcast/tensorcast.logrotate
share/doc/tensorcast/tensorcastd-cuda.conf share/bash-completion/completions/tensorcast
share/zsh/site-functions/_tensorcast share/fish/vendor_completions.d/tensorcast.fish""".split()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    destination = tmp_path_factory.mktemp("an install")
    subprocess.run(["make", "-C", ROOT, "-s", "install", f"DESTDIR={destination}", "PREFIX=/usr"], check=True, capture_output=True)
    return destination


def test_every_file_is_there(tree):
    assert [f for f in FILES if not (tree / "usr" / f).exists()] == []


def install(folder, target, destdir=""):
    """`make install` or uninstall with an ldconfig that only says that it was called; whether it was."""
    (folder / "path").mkdir(exist_ok=True)
    said, program = folder / "said", folder / "path/ldconfig"
    said.unlink(missing_ok=True)
    program.write_text(f"#!/bin/sh\necho called > '{said}'\n")
    program.chmod(0o755)
    subprocess.run(["make", "-C", ROOT, "-s", target, f"DESTDIR={destdir}", f"PREFIX={folder}/prefix"], check=True, capture_output=True,
                   env={**os.environ, "PATH": f"{folder}/path:{os.environ['PATH']}"})
    return said.exists()


def test_the_linker_is_told_of_the_library_unless_a_package_is_made(tmp_path):
    assert install(tmp_path, "install") and (tmp_path / "prefix/lib/libtensorcast.so.0").exists()
    assert not install(tmp_path, "install", destdir=tmp_path / "package")


def test_uninstall_leaves_only_what_is_not_ours(tmp_path):
    (tmp_path / "prefix/lib").mkdir(parents=True)
    (tmp_path / "prefix/lib/other.so").touch()
    install(tmp_path, "install")
    assert install(tmp_path, "uninstall")
    assert [path.name for path in (tmp_path / "prefix").rglob("*") if not path.is_dir()] == ["other.so"]
    assert not (tmp_path / "prefix/lib/tensorcast").exists() and not (tmp_path / "prefix/share/doc/tensorcast").exists()


def test_nothing_points_into_the_source_tree(tree):
    for path in tree.rglob("*"):
        if path.is_symlink():
            assert path.exists() and not os.readlink(path).startswith("/"), path
        elif path.is_file() and path.suffix in (".pc", ".service", ".socket"):
            text = path.read_text()
            assert str(tree) not in text and str(ROOT) not in text and "@PREFIX@" not in text and "@VERSION@" not in text, path


def test_the_installed_programs_run(tree):
    version = subprocess.check_output([tree / "usr/bin/tensorcast", "--version"], text=True)
    assert any(c.isdigit() for c in version)
    sample = tree / "usr/share/doc/tensorcast/store_daemon_config.yaml"
    subprocess.run([tree / "usr/bin/tensorcastd", "--config", sample, "--check-config"], check=True, capture_output=True)


PROGRAM = """#include <stdio.h>
#include <string.h>
#include <tensorcast.h>
int main(void)
{
    struct tc_error error;
    struct tc_client *client = tc_connect("/nowhere.sock", &error);
    if (!client || strcmp(tc_version(), TC_VERSION) || strcmp(tc_socket_path(client), "/nowhere.sock")) return 1;
    if (tc_resolve(client, "disk:/x", 0, 1000, &error)) return 2;
    printf("%s", tc_code_name(error.code));
    tc_disconnect(client);
    return 0;
}
"""


@pytest.mark.parametrize("linking", ["shared", "static"])
def test_a_c_program_compiles_links_and_runs_against_the_installed_tree(tree, tmp_path, linking):
    (tmp_path / "p.c").write_text(PROGRAM)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(tree / "usr/lib/pkgconfig"), "LD_LIBRARY_PATH": str(tree / "usr/lib")}
    prefix = f"{tree}/usr".replace(" ", "\\ ")

    def ask(*wanted):
        command = ["pkg-config", f"--define-variable=prefix={prefix}", *wanted, "tensorcast"]
        return shlex.split(subprocess.check_output(command, text=True, env=environment))

    cflags, libs = ask("--cflags"), ask("--libs", *(["--static"] if linking == "static" else []))
    if linking == "static":
        libs = [f"{tree}/usr/lib/libtensorcast.a" if flag == "-ltensorcast" else flag for flag in libs]
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Werror", "-o", tmp_path / "p", tmp_path / "p.c", *cflags, *libs], check=True, env=environment)
    assert subprocess.check_output([tmp_path / "p"], text=True, env=environment, timeout=60) == "UNAVAILABLE"


def test_the_shared_library_exports_its_own_names_only(tree):
    lines = subprocess.check_output(["nm", "-D", "--defined-only", tree / "usr/lib/libtensorcast.so.0"], text=True).splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines if " A " not in line}
    assert names and all(name.startswith("tc_") for name in names), names
    declared = set(re.findall(r"\b(tc_[a-z_]+)\(", (ROOT / "client/tensorcast.h").read_text()))
    assert declared <= names, declared - names


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_units_are_valid(tree):
    units = tree / "usr/lib/systemd/system"
    shipped = ("tensorcastd.service", "tensorcastd-next.service", "tensorcastd.socket")
    for unit in shipped:
        text = (units / unit).read_text().replace("/usr/bin/tensorcastd", str(tree / "usr/bin/tensorcastd").replace(" ", "\\x20"))
        (units / unit).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *(units / unit for unit in shipped)],
                          capture_output=True, text=True)
    about_ours = [line for line in done.stderr.splitlines() if "tensorcast" in line]
    assert done.returncode == 0 and not about_ours, done.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_service_is_exposed_to_little(tree):
    done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", tree / "usr/lib/systemd/system/tensorcastd.service"],
                          capture_output=True, text=True)
    if "Unknown" in done.stderr or "unrecognized" in done.stderr:
        pytest.skip("this systemd-analyze cannot look at a unit that is not loaded")
    level = re.search(r"Overall exposure level .*: ([0-9.]+)", done.stdout)
    assert level and float(level[1]) <= 1.7, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_service_forbids_no_system_call_that_the_daemon_makes(tree):
    def calls(names):
        for name in names:
            if name[0] != "@":
                yield name
                continue
            listed = subprocess.check_output(["systemd-analyze", "syscall-filter", name], text=True).splitlines()[1:]
            yield from calls([line.strip() for line in listed if line.strip()[:1] not in ("", "#")])

    lines = re.findall(r"^SystemCallFilter=(.*)", (tree / "usr/lib/systemd/system/tensorcastd.service").read_text(), re.M)
    forbidden, allowed = [line[1:].split() for line in lines if line[0] == "~"], [line.split() for line in lines if line[0] != "~"]
    denied = set(calls(sum(forbidden, []))) - set(calls(sum(allowed, [])))
    symbols = subprocess.check_output(["nm", "-D", "--undefined-only", tree / "usr/bin/tensorcastd"], text=True).split()
    made = {symbol.split("@")[0] for symbol in symbols} - {"setrlimit"}  # which the C library does by prlimit64
    made -= {"umount2"}  # of FUSE mounts that hang at a stop; where it is refused the log says so (fuse_mount_hangs)
    assert {"mount", "reboot", "clock_settime"} <= denied and "openat" not in denied
    assert not denied & made, denied & made


def test_bash_completes_commands_options_values_and_tensors(tree, tmp_path):
    script = tree / "usr/share/bash-completion/completions/tensorcast"

    def complete(*words):
        program = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); '
                   '$(complete -p tensorcast | sed "s/.*-F \\([^ ]*\\).*/\\1/"); printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.check_output(["bash", "-c", program, "bash", script, *words], text=True, env=with_command, cwd=tmp_path).split()

    with_command = {**os.environ, "PATH": f"{os.path.dirname(CLI)}:{os.environ['PATH']}"}
    assert {"inspect", "load", "explain", "status", "prewarm", "release", "verify"} <= set(complete("tensorcast", ""))
    assert "--digest" in complete("tensorcast", "load", "--di")
    assert {"auto", "generic_byte_range", "tensor_batched_local", "owner_file_collective"} == set(complete("tensorcast", "load", "--executor", ""))
    assert {"gs://", "s3://", "hf://", "disk:"} <= set(complete("tensorcast", "inspect", ""))
    assert complete("tensorcast", "load", "--executor", "=", "te") == complete("tensorcast", "load", "--executor", "te") == ["tensor_batched_local"]
    assert complete("tensorcast", "load", "--executor", "=") == complete("tensorcast", "load", "--executor", "")
    assert "bash" in complete("tensorcast", "completion", "b") and "--pin" in complete("tensorcast", "prewarm", "--p")
    assert complete("tensorcast", "activations", "est") == ["estimate"]
    write(tmp_path / "m", {"model.norm.weight": blob(1, 4), "model.norm.bias": blob(2, 4), "lm_head": blob(3, 4)})
    for option in ["--tensor", "--slice"]:
        for artifact in [[f"{tmp_path}/m"], ["disk", ":", f"{tmp_path}/m/model.safetensors"]]:
            assert sorted(complete("tensorcast", "load", *artifact, option, "model.n")) == ["model.norm.bias", "model.norm.weight"]
    write(tmp_path / "evil", {f"$(touch {tmp_path}/ran)": blob(1, 4)})
    quoted = ["\\$\\(touch\\", f"{tmp_path}/ran\\)"]
    assert complete("tensorcast", "load", f"{tmp_path}/evil", "--tensor", "") == quoted and not (tmp_path / "ran").exists()
    (tmp_path / "notes.txt").touch()
    assert complete("tensorcast", "put", f"{tmp_path}/no") == [f"{tmp_path}/notes.txt"] and complete("tensorcast", "inspect", f"{tmp_path}/no") == []
    assert {"m/", "evil/"} <= set(complete("tensorcast", "load", "")) and complete("tensorcast", "load", "ev") == ["evil/"]  # a bare path
    assert complete("tensorcast", "load", "m", "--tensor", "lm") == ["lm_head"] and complete("tensorcast", "status", "ev") == []
    for store in ["hf", "s3", "gs", "https"]:
        assert complete("tensorcast", "load", store, ":", "//") == []
    for artifact in [f"{tmp_path}/nobody", "gs://bucket/m"]:
        assert complete("tensorcast", "load", artifact, "--tensor", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_every_option_of_its_help(shell):
    ask = lambda *words: subprocess.check_output([CLI, "completion", shell, "--", *words], text=True).splitlines()  # noqa: E731
    helps = options_of_helps()
    assert {" ".join(words) for words in helps if len(words) == 1} <= {line.split("\t")[0] for line in ask("")}
    for words, options in helps.items():
        known = {line.split("\t")[0] for line in ask(*words, "")}
        assert words == ("activations",) or options <= known, words
    assert "--executor=tensor_batched_local" in ask("load", "--executor=") and "tensor_batched_local" in ask("load", "--executor", "")
    script = subprocess.check_output([CLI, "completion", shell], text=True)
    assert f"tensorcast completion {shell} --" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, capture_output=True, text=True).stderr == ""


def options_of_helps():
    """{words of a command: the long options that its help names}"""
    read = lambda *words: subprocess.check_output([CLI, *words, "--help"], text=True)  # noqa: E731
    commands = [(name,) for name in re.findall(r"^  ([a-z]+)  +[A-Z]", read(), re.M)]
    commands += [("activations", name) for name in re.findall(r"^  ([a-z]+) .*  [A-Z]", read("activations"), re.M)]
    assert {("inspect",), ("plan",), ("reshard",), ("folder",), ("activations",), ("activations", "claim")} <= set(commands)
    helps = {words: set(re.findall(r"^  (--[a-z][a-z-]+)", read(*words), re.M)) for words in commands}
    assert {"--view", "--digest", "--tp-size"} <= helps["load",]
    return helps


def test_the_man_page_knows_every_command_and_option_of_the_help(tree):
    page = (tree / "usr/share/man/man1/tensorcast.1").read_text().replace("\\-", "-")
    assert [o for o in sorted(set().union(*options_of_helps().values())) if o not in page] == []
    assert [words for words in options_of_helps() if not re.search(rf"^\.TP\n\.BI?R? .*\b{' '.join(words)}\b", page, re.M)] == []
    for alias in re.findall(r"(\w+) is \w+[,.]", subprocess.check_output([CLI, "--help"], text=True).split("Aliases: ")[1].split("\n")[0]):
        assert re.search(rf"^\.BR .*\b{alias}\b", page.split("Aliases:")[1].split("OPTIONS")[0], re.M), alias


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_the_man_pages_are_typeset_without_a_warning(tree):
    for page in (tree / "usr/share/man").rglob("*.[158]"):
        done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, env={**os.environ, "MANWIDTH": "100"})
        assert done.returncode == 0 and done.stderr == "", done.stderr
