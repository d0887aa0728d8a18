"""Runs a program with the safetensors package replaced by ours (see patching.py), and otherwise as `python` would run it."""
from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
import types
from importlib.machinery import SourcelessFileLoader, SourceFileLoader

_USAGE = """usage: python -m tensorcast_client run SCRIPT [ARGUMENT ...]
       python -m tensorcast_client run -m MODULE [ARGUMENT ...]

Runs a program whose calls of the safetensors package are served by the tensorcast daemon. SCRIPT is a file, a folder or an
archive with a __main__.py, or - for standard input.
TENSORCAST_REQUIRED=1 makes it an error where the original package would take over."""
_HELP = ("--help", "-h")


def main(arguments):
    """Does not return: ends as the program does."""
    if arguments[:1] and (arguments[0] in _HELP or (arguments[0] == "run" and arguments[1:2] and arguments[1] in _HELP)):
        print(_USAGE)
        sys.exit(0)
    if len(arguments) < 2 or arguments[0] != "run" or (arguments[1] == "-m" and len(arguments) < 3):
        sys.exit(_refused(_USAGE))
    _, first, *rest = arguments
    if first == "-m":
        start = _prepare_module(*rest)
    elif first == "-":
        start = _prepare_standard_input(rest)
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
    main_module.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main_module
    return main_module.__dict__


def _prepare_module(name, *arguments):
    sys.argv = ["-m", *arguments]  # the first one becomes the module's file
    _fresh_main()
    return lambda: runpy._run_module_as_main(name)  # what python -m itself calls


def _prepare_script(path, arguments):
    """As the interpreter does: a folder or an archive by its __main__.py, anything else as source or as compiled."""
    whole = os.path.join(os.getcwd(), path)
    if pkgutil.get_importer(path):
        sys.argv, sys.path[0:1] = [path, *arguments], [os.path.abspath(path)]
        _fresh_main()
        return lambda: runpy._run_module_as_main("__main__", alter_argv=False)
    try:
        with io.open_code(whole) as file:
            source = file.read()
    except OSError as error:
        sys.exit(_refused(f"{sys.executable}: can't open file {whole!r}: [Errno {error.errno}] {error.strerror}"))
    sys.argv = [path, *arguments]
    code = pkgutil.read_code(io.BytesIO(source))  # None: it is not compiled
    loader = SourcelessFileLoader if code else SourceFileLoader
    return _prepare_source(code or source, whole, os.path.dirname(os.path.realpath(path)), __loader__=loader("__main__", whole))


def _prepare_standard_input(arguments):
    sys.argv = ["-", *arguments]
    return _prepare_source(sys.stdin.buffer.read(), "<stdin>", "")


def _prepare_source(source, name, folder, **names):
    """folder: where its modules are looked for first."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
    program = _fresh_main()
    program.update(__file__=name, __cached__=None, **names)
    return lambda: exec(source if isinstance(source, types.CodeType) else compile(source, name, "exec", dont_inherit=True), program)


def _run(start):
    """Errors reach the interpreter, which shows them and ends as it does, but without the lines of this package."""
    try:
        start()
    except SystemExit:
        raise
    except BaseException as error:
        _hide_our_lines(_of_the_program(error.__traceback__))
        raise


def _of_the_program(where):
    """The traceback behind the last line of this file."""
    while where and where.tb_frame.f_code.co_filename == __file__:
        where = where.tb_next
    return where


def _hide_our_lines(where):
    hook = sys.excepthook
    if hook is None:  # which the interpreter has words of its own for
        return

    def shown(kind, error, _):
        sys.excepthook = hook
        error.__traceback__ = sys.last_traceback = where
        hook(kind, error, where)

    sys.excepthook = shown
