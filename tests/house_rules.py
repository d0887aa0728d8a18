#!/usr/bin/env python3
"""Checks the rules of this code that no compiler knows. Fast, reads the text alone.       usage: tests/house_rules.py

Exceptions are rows of tests/house_rules.txt, `RULE PLACE reason`; one that is not needed any more is an error, too.
"""
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_MEMBERS = 25
MOST_PARAMETERS = 7
MOST_LINES = {"function": 100, ".c": 900, ".h": 370}  # the longest header is the library's
MIRRORED = ("plan", "execute", "replica", "resolve", "load")  # every file of these has a test of its own name


def without_comments(text):
    """Strings stay as they are, comments become spaces, so that line numbers hold."""
    def blank(match):
        return match[0] if match[0][0] in "\"'" else re.sub(r"[^\n]", " ", match[0])
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', blank, text, flags=re.S)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def closing_brace(text, at):
    """The offset behind the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def members(body):
    """How many members the body of a struct declares. A struct that is defined within it counts as its members, named or not."""
    count, i, start = 0, 0, 0
    while i < len(body):
        if body[i] == "{":
            end = closing_brace(body, i)
            semicolon = body.index(";", end)
            if "enum" not in body[start:i]:
                count += members(body[i + 1:end - 1])
            else:
                count += 1 + body[end:semicolon].count(",")
            i = start = semicolon + 1
        elif body[i] == ";":
            declaration = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", body[start:i]))
            count += 1 + declaration.count(",") if declaration.strip() and "_Static_assert" not in body[start:i] else 0
            i = start = i + 1
        else:
            i += 1
    return count


def check_members(sources):
    for path, text in sources.items():
        for found in re.finditer(r"\bstruct\s+(\w+)\s*\{", text):
            count = members(text[found.end():closing_brace(text, found.end() - 1) - 1])
            if count > MOST_MEMBERS:
                yield f"{path}:{found[1]}", line_of(text, found.start()), f"struct {found[1]} has {count} members"


def parameters(text):
    """How many parameters stand between the parentheses."""
    flat = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", text)).strip()
    return 0 if flat in ("", "void") else 1 + flat.count(",")


def functions(text):
    """(name, parameters, first line, last line, whether other files see it) of each function that is defined."""
    for found in re.finditer(r"^(?!typedef|struct \w+ \{|enum|union)([a-zA-Z_][\w *]*?[ *])(\w+)\(([^;{}]*)\)\n\{\n", text, re.M):
        end = text.find("\n}", found.end())
        yield found[2], parameters(found[3]), line_of(text, found.start()), line_of(text, end) + 1, not re.match("static|int main", found[0])


def check_sizes(sources):
    """Functions and files that one cannot see at once, and functions that take too much."""
    for path, text in sources.items():
        if (n_lines := text.count("\n")) > MOST_LINES[path.suffix]:
            yield path, n_lines, f"has {n_lines} lines"
        for name, n_parameters, first, last, _ in functions(text):
            if last - first + 1 > MOST_LINES["function"]:
                yield f"{path}:{name}", first, f"{name}() has {last - first + 1} lines"
            if n_parameters > MOST_PARAMETERS:
                yield f"{path}:{name}", first, f"{name}() has {n_parameters} parameters"


def check_unused(sources):
    """A function that others may call is called somewhere outside the tests; text that a macro pastes together does not count."""
    words = {kind: Counter(word for path, text in sources.items() if path.suffix == kind for word in re.findall(r"\b[a-z]\w+", text))
             for kind in (".c", ".h")}
    for path, text in sources.items():
        if path.suffix != ".c":
            continue
        for name, _, first, _, is_public in functions(text):
            if is_public and not name.startswith("tc_") and name != "main" and words[".c"][name] <= 1 and words[".h"][name] <= 1:
                yield f"{path}:{name}", first, f"only tests call {name}()"


def check_states(sources):
    """What is called a state changes by a setter that asks the table of transitions."""
    a_state = re.compile(r"enum \w*(state|stage|phase) \w+;")
    with_states = {path.parent for path, text in sources.items() if path.suffix == ".h" and a_state.search(text)}
    for path, text in sources.items():
        if path.parts[0] != "daemon" or not (path.parent in with_states or a_state.search(text)):
            continue
        for found in re.finditer(r"->(state|stage|phase) = (?!&|\(|memory_)[^=][^;\n]*;", text):
            if "state_check(" not in text[max(0, found.start() - 200):found.start()]:
                yield path, line_of(text, found.start()), f"{found[0]} without state_check()"


def check_const(sources):
    """A pointer that goes through an integer loses its const without a word of the compiler."""
    for path, text in sources.items():
        for found in re.finditer(r"\((?!const\b)[\w ]+\*\)\(u?intptr_t\)", text):
            yield path, line_of(text, found.start()), f"{found[0]}... may cast const away"


def check_static_names(sources):
    places = defaultdict(dict)
    for path, text in sources.items():
        for found in re.finditer(r"^static\s[^=;(\n]*?\*?\b([a-z][a-z0-9]*)\(", text, re.M):
            places[found[1]].setdefault(path, line_of(text, found.start()))
    for name, files in sorted(places.items()):
        if len(files) > 1:
            path, line = next(iter(files.items()))
            yield f"{path}:{name}", line, f"{name}() is in {len(files)} files: {' '.join(map(str, files))}; say what it does that to"


def cycle(graph):
    """The nodes that lie on a cycle (Tarjan), one list for each set that reaches itself."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            nodes = [stack.pop()]
            while nodes[-1] != node:
                nodes.append(stack.pop())
            if len(nodes) > 1:
                found.append(sorted(map(str, nodes)))
    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def includes(sources):
    """(file, file that it includes) within the project; -Idaemon -I. -Iclient and the file's own folder, as the Makefile says."""
    for path, text in sources.items():
        for found in re.finditer(r'^#include "([^"]+)"', text, re.M):
            for folder in (path.parent, Path("daemon"), Path("."), Path("client")):
                if (target := folder / found[1]) in sources:
                    yield path, target
                    break


def check_file_cycles(sources):
    graph = defaultdict(set)
    for path, target in includes(sources):
        graph[path].add(target)
    for nodes in cycle(graph):
        yield nodes[0], 1, "files include each other: " + " ".join(nodes)


def check_folder_cycles(sources):
    """A file with a row of its own in docs/layers.txt is a layer of its own."""
    graph = defaultdict(set)
    alone = re.findall(r"^([\w/]+\.c):", (ROOT / "docs/layers.txt").read_text(), re.M)
    for path, target in includes(sources):
        if path.parent != target.parent and str(path) not in alone:
            graph[path.parent].add(target.parent)
    for nodes in cycle(graph):
        yield nodes[0], 1, "folders include each other: " + " ".join(nodes)


def check_ops(sources):
    """The functions of a backend are called by the file whose header declares their table, which checks the contract."""
    for path, text in sources.items():
        header = sources.get(path.with_suffix(".h"), "")
        if re.search(r"struct \w+_ops \{", header):
            continue
        for found in re.finditer(r"(->|\.)ops->\w+\(", text):
            yield path, line_of(text, found.start()), f"{found[0]}...) goes past the wrapper of the backend"


def check_error_text(sources):
    """What a message or a printed reason says decides nothing: a value beside it does."""
    for path, text in sources.items():
        for found in re.finditer(r"\b(str(n|case|ncase)?cmp|str(case)?str|text_equal\w*)\(([^;{}]*)", text):
            depth, end = 1, 0
            for end, letter in enumerate(found[4]):
                depth += {"(": 1, ")": -1}.get(letter, 0)
                if depth == 0:
                    break
            if re.search(r"\b(reason|message)\b|\breasons\[", found[4][:end]):
                yield path, line_of(text, found.start()), "a decision reads the text of an error: " + " ".join(found[0].split())[:70]
    error_h, error_c = Path("daemon/base/error.h"), Path("daemon/base/error.c")
    kinds = re.findall(r"X\((\w+)\)", re.search(r"define ERROR_KINDS\(X\)((?:.*\\\n)*.*)", sources[error_h])[1])
    for path, text in sources.items():
        for found in re.finditer(f'"({"|".join(kinds)})"', text if path != error_c else ""):
            yield path, line_of(text, found.start()), f"{found[0]} is decided on: REASON({found[1]})"


def check_tests(sources):
    tests = {test.stem for test in (ROOT / "tests").glob("*/test_*.c")}
    for path in sources:
        if path.suffix == ".c" and path.parts[0] == "daemon" and path.parts[1] in MIRRORED and f"test_{path.stem}" not in tests:
            yield path, 1, f"has no tests/unit/test_{path.stem}.c"


def check_test_sizes(sources):
    """A test file is split where its second idea begins, as any other."""
    for path in sorted(path for suffix in ("c", "h", "py", "sh") for path in (ROOT / "tests").rglob(f"*.{suffix}")):
        if (n_lines := path.read_text().count("\n")) > MOST_LINES[".c"]:
            yield path.relative_to(ROOT), n_lines, f"has {n_lines} lines"


def check_readmes(sources):
    """Every folder has a README, which names each of its files; `command_*` names all that begin so."""
    for folder in sorted({path.parent for path in sources}):
        if not (readme := ROOT / folder / "README.md").exists():
            yield folder, 1, "has no README.md"
            continue
        names = set(re.findall(r"\w+\*?", readme.read_text()))
        begins = tuple(name[:-1] for name in names if name.endswith("*"))
        for path in (path for path in sources if path.parent == folder and path.suffix == ".c"):
            if path.stem not in names and not path.stem.startswith(begins):
                yield path, 1, f"is not in {folder}/README.md"


def check_ways(sources):
    """The lists of docs/architecture.md that name the functions of a request, a group and a block name functions that exist."""
    text = (ROOT / "docs/architecture.md").read_text()
    start = text.index("## Three ways to read")
    known = set()
    for path, source in sources.items():
        if path.parts[0] == "daemon":
            known.update(re.findall(r"^[a-z][\w *]*?\b(\w+)\([^;]*\{$", source.replace("\n{", " {"), re.M))
    for found in re.finditer(r"`(\w+)`", text[start:text.index("\n## ", start + 1)]):
        if found[1] not in known:
            yield Path("docs/architecture.md"), line_of(text, start + found.start()), f"{found[1]}() is no function of the daemon"


def check_log_rates(sources):
    """What serves clients logs by log_at_of() or log_work_of(), so that no user can fill the log."""
    for path, text in sources.items():
        if path.parts[0] != "daemon" or len(path.parts) < 3 or path.parts[1] in ("base", "observe", "device", "plugins"):
            continue
        for found in re.finditer(r"\blog_(info|warn|error|at|fields)\(", text):
            yield path, line_of(text, found.start()), f"{found[0]}...) has no rate for each user: log_at_of(), or log_work_of() for work"


RULES = {
    "members": check_members,
    "sizes": check_sizes,
    "unused": check_unused,
    "states": check_states,
    "const": check_const,
    "static-names": check_static_names,
    "file-cycles": check_file_cycles,
    "folder-cycles": check_folder_cycles,
    "ops": check_ops,
    "error-text": check_error_text,
    "tests": check_tests,
    "test-sizes": check_test_sizes,
    "readmes": check_readmes,
    "ways": check_ways,
    "log-rates": check_log_rates,
}


def exceptions():
    rows = (ROOT / "tests/house_rules.txt").read_text().splitlines()
    return {tuple(row.split(maxsplit=2)[:2]): False for row in rows if row and not row.startswith("#")}


def main():
    sources = {path.relative_to(ROOT): without_comments(path.read_text())
               for top in ("daemon", "client", "config") for path in sorted((ROOT / top).rglob("*.[ch]"))}
    excepted, broken = exceptions(), 0
    for rule, check in RULES.items():
        for place, line, what in check(sources):
            if (key := (rule, str(place))) in excepted:
                excepted[key] = True
                continue
            broken += 1
            print(f"{str(place).split(':')[0]}:{line}: {what} ({rule})")
    for (rule, place), used in excepted.items():
        if not used:
            broken += 1
            print(f"tests/house_rules.txt: {rule} {place}: this exception is not needed any more")
    print(f"house rules: {len(RULES)} rules, {len(excepted)} exceptions, {broken} failures")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
