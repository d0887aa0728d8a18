"""What hosts_bench.py measured, as Markdown: goals first, then one table a section."""
import subprocess
from statistics import median

import machine
from report import Goals, spread

SECTIONS = ("eight hosts", "four hosts", "transfer", "simulation")
UNGROUPED, GROUP, SLICES = "eight hosts, no group", "eight hosts, a group", "eight hosts, slices of eight ranks"
FOUR, ALONE, THREE = "four hosts", "four that read for themselves", "four hosts, three load"
SLOW, DEAD = "the same, the fourth at a tenth of its speed", "four hosts, one is killed"


def by_round(records, name, key="seconds"):
    return {r["round"]: r[key] for r in records if r["name"] == name and key in r}


def ratios(records, mine, other, key="seconds"):
    a, b = by_round(records, mine, key), by_round(records, other, key)
    return [a[at] / b[at] for at in sorted(a.keys() & b.keys()) if b[at]]


def beyond_hedges(records, name, size):
    """Store bytes without what was hedged, over those of the model."""
    sent, hedged = by_round(records, name, "sent"), by_round(records, name, "hedged")
    return [sent[at] - hedged[at] for at in sent]


def eight_goals(g, part):
    for name in (UNGROUPED, GROUP, SLICES):
        g.at_most(f"{name}: store bytes without hedged ones / model", 1.005, beyond_hedges(part["found"], name, part["size"]), "x")


def four_goals(g, part):
    found = part["found"]
    g.at_most("four hosts: the last one ready / four that read for themselves", 0.35, ratios(found, FOUR, ALONE), "x")
    g.at_most("one owner at a tenth of its speed / undisturbed", 1.4, ratios(found, SLOW, THREE), "x")
    g.at_most("one host is killed / undisturbed", 1.5, ratios(found, DEAD, FOUR), "x")


def transfer_goals(g, part):
    for mine, other in (("a host, no proof", "nginx, http"), ("a host, key", "nginx, http"), ("a host, TLS", "nginx, https")):
        g.at_least(f"{mine}: rate, of {other}", 0.9, ratios(part["found"], mine, other, "rate"))


def simulation_goals(g, part):
    for case, goal in (("plain", 1.15), ("one at a tenth", 1.3)):
        g.at_most(f"simulation, 64 hosts, {case}: of the formula", goal,
                  [r["ready_s"] / r["formula_s"] for r in part["found"] if r["hosts"] == 64 and r["case"] == case], "x")


def runs(found):
    named = {}
    for record in found:
        named.setdefault(record["name"], []).append(record)
    return named.items()


def rows(found, cells):
    lines = []
    for name, records in runs(found):
        good = [r for r in records if "failed" not in r]
        lines.append(f"| {name} | {' | '.join(cells(good)) if good else 'failed: ' + records[0]['failed']} |")
        if any(r["equal"] is False for r in good):
            lines.append(f"| {name}: the bytes are WRONG | | | | | |")
    return lines


def cluster_table(part):
    def cells(found):
        return [spread([r["seconds"] for r in found]), spread([r["sent"] for r in found], 3), spread([r["hedged"] for r in found], 3),
                spread([r["peer"] for r in found]), spread([r["cpu_s"] for r in found], 1)]
    return ["| | last ready s | store bytes / model | hedged / model | from hosts / model | CPU s |", "|---|---|---|---|---|---|", *rows(part["found"], cells)]


def transfer_table(part):
    def cells(found):
        return [spread([r["rate"] for r in found]), spread([r["cpu_s"] for r in found]), spread([r["server_s"] for r in found])]
    return ["| | GB/s | receiver CPU s/GB | sender CPU s/GB |", "|---|---|---|---|", *rows(part["found"], cells)]


def simulation_table(part):
    cases = list(dict.fromkeys(r["case"] for r in part["found"]))
    lines = [f"| hosts | formula s | {' | '.join(cases)} |", f"|---|---|{'---|' * len(cases)}"]
    for n in dict.fromkeys(r["hosts"] for r in part["found"]):
        some = {r["case"]: r for r in part["found"] if r["hosts"] == n}
        lines.append(f"| {n} | {some[cases[0]]['formula_s']:.1f} | " +
                     " | ".join(f"{some[c]['ready_s']:.1f} s, {some[c]['store']:.2f}x" for c in cases) + " |")
    return lines


TITLES = {"eight hosts": "Eight hosts", "four hosts": "Four hosts", "transfer": "From one host to another, over loopback",
          "simulation": "Simulated: seconds until the last host is ready, and store bytes / model"}
NOTES = {"simulation": "1.4 TB, on a thousand hosts 35 GB, of which each host needs half; 100 Gbit/s from the store, 400 Gbit/s between hosts. "
                       "The formula is what the planner estimates for `owner_peers`."}
GOALS = {"eight hosts": eight_goals, "four hosts": four_goals, "transfer": transfer_goals, "simulation": simulation_goals}


def text(records, build):
    version = subprocess.run([build / "tensorcast", "--version"], capture_output=True, text=True).stdout.strip()
    g, tables = Goals(), []
    for section in (name for name in SECTIONS if name in records):
        part = records[section]
        GOALS[section](g, part)
        table = {"transfer": transfer_table, "simulation": simulation_table}.get(section, cluster_table)(part)
        others = [r["others"] for r in part["found"] if "others" in r]
        busy = f" Other work took {median(others):.1f} of the cores." if others else ""
        about = "" if section == "simulation" else f"{part['date']}, {part['size'] / 1e9:.2f} GB, {part['rounds']} rounds.{busy}"
        tables += [f"### {TITLES[section]}", "", " ".join(words for words in (about, NOTES.get(section)) if words), "", *table, ""]
    return "\n".join([f"{machine.describe()}; {version}. All daemons, the store and the clients share the cores. The store gives 100 MB/s to a "
                      "connection and 200 MB/s in all, 10 ms after each request.", "", g.table(), *tables]).rstrip() + "\n"
