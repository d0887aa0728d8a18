"""Runs a program with the safetensors package replaced by ours (see patching.py), and otherwise as `python` would run it."""
from __future__ import annotations

import io
import os
import runpy
import sys
import types

_USAGE = """usage: python -m tensorcast_client run SCRIPT [ARGUMENT ...]
       python -m tensorcast_client run -m MODULE [ARGUMENT ...]

Runs a program whose calls of the safetensors package are served by the tensorcast daemon.
TENSORCAST_REQUIRED=1 makes it an error where the original package would take over."""


def main(arguments):
    """Does not return: ends as the program does."""
    if arguments[:1] in (["--help"], ["-h"]):
        print(_USAGE)
        sys.exit(0)
    if len(arguments) < 2 or arguments[0] != "run" or (arguments[1] == "-m" and len(arguments) < 3):
        sys.exit(_refused(_USAGE))
    _, first, *rest = arguments
    if first == "-m":
        start = _prepare_module(*rest)
    elif first.startswith("-"):
        sys.exit(_refused(f"there is no option {first}\n{_USAGE}"))
    else:
        start = _prepare_script(first, rest)
    from .patching import patch
    patch()
    _run(start)


def _refused(message):
    print(message, file=sys.stderr)
    return 2


def _fresh_main():
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = main_module
    return main_module.__dict__


def _prepare_module(name, *arguments):
    sys.argv = ["-m", *arguments]  # the first one becomes the module's file
    _fresh_main()
    return lambda: runpy._run_module_as_main(name)  # what python -m itself calls


def _prepare_script(path, arguments):
    """As the interpreter does: a folder or an archive by its __main__.py, anything else as source."""
    sys.argv = [path, *arguments]
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path[0:1] = [path]
        _fresh_main()
        return lambda: runpy._run_module_as_main("__main__", alter_argv=False)
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        sys.exit(_refused(f"{sys.executable}: can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] {error.strerror}"))
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    names = _fresh_main()
    names.update(__file__=path, __cached__=None)

    def start():
        exec(compile(source, path, "exec", dont_inherit=True), names)

    return start


def _run(start):
    """Errors are shown without the lines of this file."""
    try:
        start()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        where = error.__traceback__
        while where and where.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            where = where.tb_next
        error.__traceback__ = where
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, where
        sys.excepthook(type(error), error, where)
        sys.exit(1)
