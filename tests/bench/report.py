"""Medians, spreads and ratios as Markdown: one table a case, and the goals of the project with what was reached.

Ratios are formed within a round, where both ran under the same conditions, and the median of them is shown.
"""
import re
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
    """Their median, and behind it least and most if these differ as shown."""
    least, middle, most = (f"{of(values):.{digits}f}" for of in (min, median, max)) if values else ("-", "-", "-")
    return middle if least == most else f"{middle} [{least}..{most}]"


def tight(text):
    """Markdown whose tables have no spaces around their bars."""
    return re.sub(r"^\|.*", lambda line: re.sub(r" *\| *", "|", line[0]), text, flags=re.M)


def row(case_bytes, records, name, runs, ceiling):
    took, ready = ([r[key] for r in runs.values()] for key in ("touched_s", "loaded_s"))
    share = ratio(records, ceiling, name)
    cpu = [r["cpu_s"] / (case_bytes / GB) for r in runs.values() if r.get("cpu_s") is not None]
    cells = [name, f"{median(ready):.3f}", spread(took, 3), f"{median(share):.2f}" if share else "-",
             f"{median(cpu):.3f}" if cpu else "-"]
    return "| " + " | ".join(cells) + " |"


def problems(records):
    """A line for each contender that could not run, or whose bytes were not those of the files."""
    return sorted({f"- {r['name']} could not run: {r['failed']}" if "failed" in r else f"- {r['name']}: the bytes are WRONG"
                   for r in records if "failed" in r or r.get("equal") is False})


def case_table(title, case_bytes, records, ceiling):
    named = by_name(records)
    order = sorted(named, key=lambda n: median(r["touched_s"] for r in named[n].values()))
    lines = [f"### {title}: {case_bytes / GB:.2f} GB", "",
             f"| | ready s | touched s | of {ceiling} | CPU s/GB |", "|---|---|---|---|---|"]
    lines += [row(case_bytes, records, name, named[name], ceiling) for name in order]
    return "\n".join([*lines, "", *problems(records)]).rstrip() + "\n"


class Goals:
    """Rows of (work, goal, reached, whether it is met); a goal whose measurement is missing says so and is not met."""

    def __init__(self):
        self.rows = []

    def at_least(self, work, goal, values, unit="x"):
        self.add(work, f">= {goal}{unit}", values, unit, lambda v: v >= goal)

    def at_most(self, work, goal, values, unit):
        self.add(work, f"<= {goal}{unit}", values, unit, lambda v: v <= goal)

    def add(self, work, goal, values, unit, holds):
        if not values:
            self.rows.append((work, goal, "not measured", False))
        else:
            digits = 0 if median(values) >= 100 else 2 if median(values) >= 0.1 else 3
            self.rows.append((work, goal, spread(values, digits) + unit, holds(median(values))))

    def table(self):
        """How many goals are met, and the others."""
        missed = [f"| {work} | {goal} | {reached} |" for work, goal, reached, met in self.rows if not met]
        lines = [f"{len(self.rows) - len(missed)} of {len(self.rows)} goals met.", ""]
        return "\n".join([*lines, *(["| not met | goal | reached |", "|---|---|---|", *missed, ""] if missed else [])])
