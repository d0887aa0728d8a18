"""`python -m tensorcast_client run`: programs that use the safetensors package run as they are, as the interpreter would run them."""
import os
import py_compile
import subprocess
import sys
import zipfile

import pytest


def run(daemon, *arguments, cwd=None, environment=None, **options):
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=240, cwd=cwd,
                          env={**os.environ, "TENSORCAST_SOCKET": str(daemon.socket), "TENSORCAST_REQUIRED": "1",
                               "PYTHONPATH": os.pathsep.join(paths), **(environment or {})}, **options)


PROGRAM = '''import os, sys
import safetensors, beside
here = sys.path[0] == os.path.dirname(os.path.realpath(__file__))
print(__name__, sys.argv[1:], here, sys.stdin.read(), safetensors.safe_open.__mro__[1].__module__)
if sys.argv[1:]:
    raise LookupError("mine")
os.kill(os.getpid(), 15)
'''


def test_a_program_that_is_run_is_its_own(daemon, tmp_path):
    (tmp_path / "main.py").write_text(PROGRAM)
    (tmp_path / "beside.py").touch()
    failed = run(daemon, "-m", "tensorcast_client", "run", tmp_path / "main.py", "-x", input="typed")
    assert failed.stdout == "__main__ ['-x'] True typed tensorcast_client.safetensors.handle\n", failed
    lines = failed.stderr.splitlines()
    assert failed.returncode == 1 and lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{tmp_path}/main.py", line ')
    assert lines[-1] == "LookupError: mine"
    assert run(daemon, "-m", "tensorcast_client", "run", "-m", "main", cwd=tmp_path, input="").returncode == -15
    refused = run(daemon, "-m", "tensorcast_client", "run")
    assert refused.returncode == 2 and "usage" in refused.stderr


ENDS = {
    "error": "def broken():\n    raise LookupError('mine')\nbroken()",
    "interrupted": "import atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt",
    "no Python": "def broken(:",
    "own hook": "import sys\nsys.excepthook = lambda kind, error, where: print(kind, where.tb_frame.f_code.co_name)\n1 / 0",
    "what it sees": "import sys, inspect\ndef mine(): pass\nprint(__file__, __builtins__, __cached__, sys.argv, sys.path[0], sys.excepthook)\n"
                    "print(inspect.getsource(mine))\nsys.exit('no')",
}


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("how", ["./main.py", "-", "-m main", "."])
def test_a_program_is_run_as_the_interpreter_runs_it(daemon, tmp_path, how, what):
    for name in ("main.py", "__main__.py"):
        (tmp_path / name).write_text(ENDS[what])
    typed = ENDS[what] if how == "-" else ""
    plain, ours = (run(daemon, *start, *how.split(), "-x", cwd=tmp_path, input=typed, environment={"PYTHONSAFEPATH": ""})
                   for start in ((), ("-m", "tensorcast_client", "run")))
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.parametrize("kind", ["archive", "compiled"])
def test_archives_and_compiled_programs_of_any_name_are_run(daemon, tmp_path, kind):
    source = "import sys\nprint(__file__, sys.argv, sys.path[0], type(__loader__).__name__)\ndef broken():\n    1 / 0\nbroken()"
    (tmp_path / "main.py").write_text(source)
    if kind == "archive":
        with zipfile.ZipFile(tmp_path / "program", "w") as archive:
            archive.writestr("__main__.py", source)
    else:
        py_compile.compile(tmp_path / "main.py", tmp_path / "program", dfile="main.py")
    plain, ours = (run(daemon, *start, "program", "-x", cwd=tmp_path) for start in ((), ("-m", "tensorcast_client", "run")))
    assert "program" in plain.stdout and (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_run_explains_itself(daemon):
    for arguments in (["run", "--help"], ["--help"]):
        asked = run(daemon, "-m", "tensorcast_client", *arguments)
        assert asked.returncode == 0 and asked.stdout.startswith("usage: python -m tensorcast_client run"), asked
