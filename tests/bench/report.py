"""Medians, spreads and ratios as Markdown: one table a case, and the goals of the project with what was reached.

Ratios are formed within a round, where both ran under the same conditions, and the median of them is shown.
"""
from statistics import median

GB = 1e9


def by_name(records):
    named = {}
    for record in records:
        if "touched_s" in record:
            named.setdefault(record["name"], {})[record["round"]] = record
    return named


def ratio(records, other, mine, key="touched_s"):
    """[other / mine] per round: above 1, mine took less. Ceilings do not touch what they read or copied, so a ratio to one
    is taken of loaded_s: every byte is in memory that the consumer has mapped."""
    named = by_name(records)
    a, b = named.get(other, {}), named.get(mine, {})
    return [a[r][key] / b[r][key] for r in sorted(a.keys() & b.keys()) if b[r][key]]


def best_peer(records, peers):
    named = by_name(records)
    times = {p: median(r["touched_s"] for r in named[p].values()) for p in peers if p in named}
    return min(times, key=times.get) if times else None


def spread(values, digits=2):
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]" if values else "-"


def row(case_bytes, records, name, runs, ceiling):
    took, ready = ([r[key] for r in runs.values()] for key in ("touched_s", "loaded_s"))
    share = ratio(records, ceiling, name)
    cpu = [r["cpu_s"] / (case_bytes / GB) for r in runs.values() if r.get("cpu_s") is not None]
    disk = [r["disk_bytes"] / GB for r in runs.values() if r.get("disk_bytes") is not None]
    peak = [(r["peak_bytes"] - r["view_bytes"]) / 1048576 for r in runs.values() if r.get("peak_bytes")]
    memory = "/".join(sorted({r["memory"] for r in runs.values() if r.get("memory")})) or "-"
    checks = [r["equal"] for r in runs.values() if r.get("equal") is not None]
    cells = [name, len(runs), f"{median(ready):.3f}", spread(took, 3), f"{case_bytes / GB / median(took):.2f}", f"{median(share):.2f}" if share else "-",
             f"{median(disk):.2f}" if disk else "-", f"{median(cpu):.3f}" if cpu else "-", f"{max(peak):.0f}" if peak else "-", memory,
             "-" if not checks else "yes" if all(checks) else "NO"]
    return "| " + " | ".join(map(str, cells)) + " |"


def case_table(title, case_bytes, records, ceiling):
    named = by_name(records)
    order = sorted(named, key=lambda n: median(r["touched_s"] for r in named[n].values()))
    lines = [f"### {title}: {case_bytes / GB:.2f} GB", "",
             f"| | runs | ready s | touched s [spread] | GB/s | of {ceiling} | GB from disk | CPU s/GB | daemon MiB over view | pages | bytes equal |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    lines += [row(case_bytes, records, name, named[name], ceiling) for name in order]
    failed = {r["name"]: r["failed"] for r in records if "failed" in r}
    lines += ["", *(f"- {name} could not run: {why}" for name, why in sorted(failed.items()))] if failed else []
    return "\n".join(lines) + "\n"


class Goals:
    """Rows of (work, goal, reached, yes or no); a goal whose measurement is missing says so."""

    def __init__(self):
        self.rows = []

    def at_least(self, work, goal, values, unit="x"):
        self.add(work, f">= {goal}{unit}", values, unit, lambda v: v >= goal)

    def at_most(self, work, goal, values, unit):
        self.add(work, f"<= {goal}{unit}", values, unit, lambda v: v <= goal)

    def add(self, work, goal, values, unit, holds):
        if not values:
            self.rows.append((work, goal, "not measured", "-"))
        else:
            digits = 0 if median(values) >= 100 else 2 if median(values) >= 0.1 else 3
            self.rows.append((work, goal, spread(values, digits) + unit, "yes" if holds(median(values)) else "**no**"))

    def table(self):
        lines = ["| work | goal | reached [spread] | met |", "|---|---|---|---|"]
        return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in self.rows]) + "\n"
