#!/usr/bin/env python3
"""Checks that every place that says the version says what the file VERSION says.      usage: setup/version.py [--write]

The Makefile reads VERSION itself; packages, the public header and the manual pages are files of their own when they are
installed, so --write puts it there (`make version`).
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "client/python/tensorcast_client/_version.py": r'VERSION = "([^"]+)"',
    "client/daemon/pyproject.toml": r'(?m)^version = "([^"]+)"',
    "client/vllm/pyproject.toml": r'(?m)^version = "([^"]+)"',
    "client/sglang/pyproject.toml": r'(?m)^version = "([^"]+)"',
    "client/tensorcast.h": r'#define TC_VERSION "([^"]+)"',
    "debian/changelog": r"\(([^)]+)\)",
    "docs/man/tensorcast.1": r'"tensorcast ([0-9][^"]*)"',
    "docs/man/tensorcastd.8": r'"tensorcast ([0-9][^"]*)"',
}


def main():
    version, wrong = (ROOT / "VERSION").read_text().strip(), 0
    for name, pattern in PLACES.items():
        path = ROOT / name
        text = path.read_text()
        found = re.search(pattern, text)
        if found and found[1] == version:
            continue
        if found and "--write" in sys.argv:
            path.write_text(text[:found.start(1)] + version + text[found.end(1):])
        else:
            wrong += 1
            print(f"{name}: says {found[1] if found else 'no version'}, VERSION says {version}; run make version")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
