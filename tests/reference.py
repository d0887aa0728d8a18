#!/usr/bin/env python3
"""Every error reason and every log event of the code has a row in docs/errors.txt or docs/log-events.txt, and no row is without one.

The code tells codes, levels and fields; the tables tell what they mean.  usage: tests/reference.py [--write]
--write makes docs/errors*.md and docs/log-events.md of both (`make docs`); without it, pages that differ are an error (`make house`).
"""
import re
import sys
from collections import defaultdict

from house_rules import ROOT, line_of, without_comments

# words in capitals that are no reasons: variables, keys of other formats, gRPC codes
OTHERS = re.compile(
    r"(AWS|GCE|HF|XDG|LD_LIBRARY|SSL|TENSORCAST|LISTEN|WATCHDOG|NCCL_P2P|NCCL_SOCKET|GOOGLE|CLOUDSDK|CURL|REQUESTS|LEVANTER|RUNAI|JOURNAL|NOTIFY"
    r"|HUGGINGFACE|STORAGE_EMULATOR|GRPC|F[68]|DCP|F_SEAL|SC)_\w+|(NO|ALL|HTTPS?)_PROXY|NO_GCE_CHECK|DEFAULT_SOCKET|FULL_OBJECT|(LOGS|CREDENTIALS)_DIRECTORY"
    r"|GENERIC_BYTE_RANGE|OWNER_FILE_COLLECTIVE|TENSOR_AWARE_LOCAL|FOLDER_IDENTITY|INVALID_ARGUMENT|NOT_FOUND|ALREADY_EXISTS"
    r"|PERMISSION_DENIED|RESOURCE_EXHAUSTED|FAILED_PRECONDITION|OUT_OF_RANGE|DATA_LOSS|CREDENTIALS_DIRECTORY")
# one word alone is a reason only where a code stands before it
_A_REASON_FOLLOWS = re.compile(r"((ERROR_[A-Z_]+|AGAIN), *|reason=)$")
_A_LOG_CALL = re.compile(r"\b(log_(?:trace|debug|info|warn|error|at|at_of|work_of|line))\(")


def texts():
    """(path, text without comments of C) of all code that users run."""
    for top in ("config", "daemon", "client"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".c", ".h", ".py") and "build" not in path.parts:
                text = path.read_text()
                yield path.relative_to(ROOT), text if path.suffix == ".py" else without_comments(text)


def code_before(path, text, at):
    """The gRPC code that is given with the reason at this place, if it can be seen."""
    before = text[max(0, at - 300):at]
    if path.suffix == ".py":
        near = re.findall(r"StatusCode\.([A-Z_]+)|\b(invalid)\(", before)
        return (near[-1][0] or "INVALID_ARGUMENT") if near else None
    found = re.search(r"ERROR_((?!KIND)[A-Z_]+),\s*(?:[^,;{}]{0,40}\?\s*)?$", before)
    return found and found[1]


def reasons():
    """reason: (codes, first place)"""
    found = defaultdict(lambda: [set(), None])
    for path, text in texts():
        for word in re.finditer(r'"([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*)"|REASON\(([A-Z_0-9]+)\)', text):
            name = word[1] or word[2]
            if OTHERS.fullmatch(name) or ("_" not in name and not _A_REASON_FOLLOWS.search(text[max(0, word.start() - 40):word.start()])):
                continue
            found[name][0].add(code_before(path, text, word.start()))
            found[name][1] = found[name][1] or f"{path}:{line_of(text, word.start())}"
    return found


def arguments(text, start):
    """What stands between commas, from the offset behind an opening parenthesis on."""
    depth, parts = 1, [""]
    for part in re.finditer(r'"(?:\\.|[^"\\])*"|.', text[start:], re.S):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(part[0], 0)
        if depth == 0:
            return parts
        if part[0] == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += part[0]
    return parts


def events():
    """event: (levels, fields, first place)"""
    found = defaultdict(lambda: [set(), {}, None])
    executors = re.findall(r'X\(\w+,\s*"(\w+)"', (ROOT / "config/executor.h").read_text())
    for path, text in texts():
        if path.suffix != ".c":
            continue
        for call in _A_LOG_CALL.finditer(text):
            parts = arguments(text, call.end())
            kind = call[1].removeprefix("log_")
            at = {"at": 1, "at_of": 1, "line": 1}.get(kind, 0)
            names = re.findall(r'"(\w+)"', parts[at]) if at < len(parts) else []
            if at < len(parts) and "executor_names[" in parts[at]:
                names = executors
            level = "info" if kind == "work_of" else " ".join(parts[at - 1:at]) if at else kind
            levels = {level} if not at else {name.lower() for name in re.findall(r"LOG_([A-Z]+)\b", level)} or {"varies"}
            levels |= {"varies"} if at and "log_level_of_error" in level else set()
            has_uid = kind in ("at_of", "work_of") and parts[at + 1].strip() != "LOG_NOBODY"
            fields = ["uid"] * has_uid + re.findall(r'LOG_(?:TEXT|U64|MS|REAL|BOOL)\(\s*"(\w+)"', " ".join(parts[at + 1:]))
            for name in names:
                found[name][0].update(levels)
                found[name][1].update(dict.fromkeys(fields))
                found[name][2] = found[name][2] or f"{path}:{line_of(text, call.start())}"
    return found


def pages_of(name, known, heads, cells):
    """({name: the page}, what is wrong with the table). Lines that are no rows are the page's own; `#> NAME` begins another page."""
    mark, wrong, seen = f"<!-- made by `make docs` of docs/{name}.txt and the code -->", [], set()
    lines = [mark]
    pages = {name: lines}
    for line in (ROOT / f"docs/{name}.txt").read_text().splitlines():
        if not re.match(r"\w+ \| ", line):
            if line.startswith("#> "):
                lines = pages[line[3:]] = [mark]
            elif not line.startswith("#:"):
                lines.append(line)
            continue
        key, *rest = line.split(" | ")
        if key in seen or key not in known:
            wrong.append(f"docs/{name}.txt: {key} " + ("has two rows" if key in seen else "is not in the code any more: remove its row"))
            continue
        if not lines[-1].startswith("|"):
            lines += [f"|{'|'.join(heads)}|", "|---" * len(heads) + "|"]
        seen.add(key)
        lines.append(f"|`{key}`|{'|'.join([*cells(known[key]), *rest, ''][:len(heads) - 1])}|")
    wrong += [f"{known[key][-1]}: {key} has no row in docs/{name}.txt" for key in sorted(set(known) - seen)]
    return {name: "\n".join(lines) + "\n" for name, lines in pages.items()}, wrong


def main():
    errors, failures = pages_of("errors", reasons(), ("reason", "code", "means", "do"), lambda of: (" ".join(sorted(filter(None, of[0]))),))
    logged, wrong = pages_of("log-events", events(), ("event", "level", "fields", "says"), lambda of: (" ".join(sorted(of[0])), " ".join(of[1])))
    failures += wrong
    for name, text in {**errors, **logged}.items():
        path = ROOT / f"docs/{name}.md"
        if "--write" in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            failures.append(f"docs/{name}.md is not what code and its .txt say: make docs")
    print(*failures, sep="\n", end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
