#!/usr/bin/env python3
"""Prints which share of lines and branches ran, by folder.       usage: tests/coverage.py BUILD [--files] [--only NAME.c ...]

BUILD holds objects made with --coverage, as `make coverage-units` makes them, and what the programs left there when they ended.
--files prints every file, --only just those of these basenames. Lines of a header count once, however many files include it.
"""
import json
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("daemon/", "client/", "config/")


def run_gcov(notes):
    done = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", *map(str, notes)], cwd=ROOT,
                          capture_output=True, text=True)
    return [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]


def collect(build):
    """{file: {line: [times it ran, {branch: times it was taken}]}}"""
    files = defaultdict(lambda: defaultdict(lambda: [0, defaultdict(int)]))
    notes = [note for top in OURS for note in (build / "obj" / top).rglob("*.gcno")]
    with ThreadPoolExecutor() as pool:
        answers = pool.map(run_gcov, [notes[i::32] for i in range(32) if notes[i::32]])
        for file in (file for answer in answers for unit in answer for file in unit["files"]):
            if file["file"].startswith(OURS):
                for line in file["lines"]:
                    entry = files[file["file"]][line["line_number"]]
                    entry[0] += line["count"]
                    for number, branch in enumerate(line["branches"]):
                        entry[1][number] += branch["count"]
    return files


def totals(lines):
    """(lines, lines that ran, branches, branches that were taken)"""
    branches = [count for entry in lines for count in entry[1].values()]
    return len(lines), sum(entry[0] > 0 for entry in lines), len(branches), sum(count > 0 for count in branches)


def share(part, of):
    return f"{100 * part / of:5.1f} %" if of else "      -"


def main():
    build = Path(sys.argv[1]).resolve()
    files = collect(build)
    if not files:
        print(f"coverage: {build} has no objects made with --coverage")
        return 1
    only = sys.argv[sys.argv.index("--only") + 1:] if "--only" in sys.argv else None
    rows = defaultdict(list)
    for name, lines in sorted(files.items()):
        if only is not None and Path(name).name not in only:
            continue
        rows[name if only is not None or "--files" in sys.argv else str(Path(name).parent)] += lines.values()
    rows["all"] = [line for row in rows.values() for line in row]
    for name, row in rows.items():
        n_lines, ran, n_branches, taken = totals(row)
        print(f"coverage: {name:28} {share(ran, n_lines)} of {n_lines:6} lines, {share(taken, n_branches)} of {n_branches:6} branches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
