"""What groups_bench.py measured, as Markdown: goals first, then one table a case."""
import subprocess
from statistics import median

import machine
from report import GB, Goals, by_name, problems, spread

ALONE, SCATTER = "one rank, everything", "scatter copy of the rest"
GROUP, UNGROUPED = "a group", "no group"
MIB, STAGING_MIB = 1 << 20, 64
ONCE = 1.01  # headers, and the device's alignment


def runs(part, name):
    return by_name(part["found"]).get(name, {})


def against_reader(part):
    """[group / (one reader of the unique bytes + the copy of what is left)] per round."""
    group, alone, scatter = (runs(part, name) for name in (GROUP, ALONE, SCATTER))
    return [group[r]["loaded_s"] / (alone[r]["loaded_s"] + scatter[r]["loaded_s"]) for r in sorted(group.keys() & alone.keys() & scatter.keys())]


def against_alone(part):
    group, alone = runs(part, GROUP), runs(part, ALONE)
    return [group[r]["loaded_s"] / alone[r]["loaded_s"] for r in sorted(group.keys() & alone.keys())]


def times_read(part, key):
    return [r[key] / part["unique_bytes"] for r in runs(part, GROUP).values()]


def once_goals(g, title, part):
    if title.endswith("cold"):
        g.at_most(f"{title}: bytes from the disk / unique bytes", ONCE, times_read(part, "disk_bytes"), "x")
    g.at_most(f"{title}: bytes asked of the kernel / unique bytes", ONCE, times_read(part, "asked_bytes"), "x")


def four_goals(g, title, part):
    g.at_most(f"{title}: group / (one rank + scatter copy)", 1.15, against_reader(part), "x")
    once_goals(g, title, part)


def replicated_goals(g, title, part):
    g.at_most(f"{title}: group / one rank", 1.3, against_alone(part), "x")
    once_goals(g, title, part)
    g.at_most(f"{title}: replicas", 1, [len(r["replicas"]) for r in runs(part, GROUP).values()], "")
    g.at_most(f"{title}: peak RSS of the daemon over one replica and 64 MiB staging", 32,
              [(r["peak_bytes"] - part["unique_bytes"]) / MIB - STAGING_MIB for r in runs(part, GROUP).values()], " MiB")


def overheads_ms(record):
    """What each rank's load took in the daemon, except for resolving its own view and moving bytes; the last to come first."""
    return sorted(report["ms"]["total"] - report["ms"]["resolve"] - report["ms"]["execute"] for report in record["reports"])


def many_goals(g, title, part):
    for word, which in (("last to come", 0), ("that waited longest", -1)):
        g.at_most(f"{title}: assembly, planning, commit, of the rank {word}", 150,
                  [overheads_ms(r)[which] for r in runs(part, GROUP).values()], " ms")


GOALS = {"four": four_goals, "replicated": replicated_goals, "many": many_goals}


def case_table(title, part):
    lines = [f"### {title}: {part['unique_bytes'] / GB:.2f} GB, {part['needed_bytes'] / GB:.2f} GB wanted", "",
             "| | ready s | touched s | disk GB | asked GB | CPU s | peak MiB |",
             "|---|---|---|---|---|---|---|"]
    for name in (ALONE, SCATTER, UNGROUPED, GROUP):
        found = list(runs(part, name).values())
        if found:
            lines.append("| " + " | ".join(cells(name, found)) + " |")
    return "\n".join([*lines, "", *problems(part["found"]), ""])


def cells(name, found):
    ready, touched = [r["loaded_s"] for r in found], median(r["touched_s"] for r in found)
    if name == SCATTER:
        return [name, spread(ready, 3), f"{touched:.3f}", *["-"] * 4]
    disk, asked, cpu, peak = (median(r[key] for r in found) for key in ("disk_bytes", "asked_bytes", "cpu_s", "peak_bytes"))
    return [name, spread(ready, 3), f"{touched:.3f}", f"{disk / GB:.2f}", f"{asked / GB:.2f}", f"{cpu:.2f}", f"{peak / MIB:.0f}"]


def text(records, build, packages):
    version = subprocess.run([build / "tensorcast", "--version"], capture_output=True, text=True).stdout.strip()
    dates, rounds = (sorted({str(part[key]) for part in records.values()}) for key in ("date", "rounds"))
    g, tables = Goals(), []
    for title, part in records.items():
        GOALS[part["kind"]](g, title, part)
        tables.append(case_table(title, part))
    return "\n".join([f"Measured on {', '.join(dates)}: {machine.describe()}; {version}; {packages}. "
                      f"{' or '.join(rounds)} rounds.", "", g.table(), *tables]).rstrip() + "\n"
