"""Where the programs of tensorcast are."""
from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

if sys.executable:  # commands that this program starts run the client where it is: here
    os.environ.setdefault("TENSORCAST_PYTHON", sys.executable)


def find(name: str) -> str | None:
    """"tensorcast" or "tensorcastd": beside this package, beside the command that TENSORCAST_BIN names, beside the interpreter, where
    the wheel tensorcast_daemon puts them, or in PATH."""
    named = os.environ.get("TENSORCAST_BIN")
    for folder in (Path(__file__).parent, Path(named).parent if named else None, Path(sys.executable).parent if sys.executable else None):
        if folder and os.access(folder / name, os.X_OK):
            return str(folder / name)
    return named if named and name == "tensorcast" else shutil.which(name)
