"""What stores_bench.py measured, as Markdown: goals first, then one table a section."""
import subprocess
from statistics import median

import far_away
import machine
from report import GB, Goals, by_name, problems, ratio, spread

STAGING_MIB, REQUEST_BYTES, ALONE_S = far_away.STAGING_MIB, far_away.REQUEST_BYTES, far_away.ALONE_S
TOUCHED, FRESH = "plain libcurl, touched memory", "plain libcurl, fresh memory"
BARE = "bare sockets, touched memory"


def values(records, name, key):
    return [r[key] for r in by_name(records).get(name, {}).values() if r.get(key) is not None]


def nginx_goals(g, title, part, cpu_goal):
    records, gigabytes = part["found"], part["size"] / GB
    for mine, yardstick in (("tensorcast C, pool", TOUCHED), ("tensorcast C, fresh", FRESH), ("tensorcast C, no privileges", FRESH),
                            ("tensorcast --standalone", FRESH)):
        g.at_least(f"{title}, {mine}: of {yardstick}", 0.9, ratio(records, yardstick, mine, "loaded_s"))
    for mine in ("tensorcast C, pool", "tensorcast C, fresh", "tensorcast --standalone"):
        g.at_most(f"{title}, {mine}: client CPU", cpu_goal, [s / gigabytes for s in values(records, mine, "cpu_s")], " s/GB")
    for mine, yardstick in (("tensorcast C, pool", TOUCHED), ("tensorcast C, fresh", FRESH), ("tensorcast --standalone", FRESH)):
        g.at_most(f"{title}, {mine}: client CPU / that of {yardstick} (our own bound)", 1.2,
                  ratio(records, mine, yardstick, "cpu_s"), "x")
    if BARE in by_name(records):
        g.at_most(f"{title}, tensorcast C, pool: client CPU / that of {BARE}, without sums (our own bound)", 1.5,
                  ratio(records, "tensorcast C, pool", BARE, "cpu_s"), "x")


def far_goals(g, part):
    for link in far_away.LINKS:
        records = [r for r in part["found"] if r["link"] == link]
        name = f"far away, link of {link / GB:.1f} GB/s" if link else "far away, no limit in all"
        g.at_most(f"{name}: C * chunk / (L + chunk / r) / reached, C at most", 1.2, [formula(r, most(r)) / reached(r) for r in records], "x")
        g.at_most(f"{name}: the same, C on average", 1.2, [formula(r, average(r)) / reached(r) for r in records], "x")
        if link:
            fill = link * ALONE_S / REQUEST_BYTES
            g.at_most(f"{name}: C chosen against the {fill:.1f} that fill the link, apart by", 20,
                      [abs(r["learned"]["parallel_requests"] / fill - 1) * 100 for r in records], " %")


def most(record):
    return record["server"]["most"]


def average(record):
    return record["server"]["request_ms"] / max(1, record["server"]["busy_ms"])


def formula(record, requests):
    rate = requests * REQUEST_BYTES / ALONE_S
    return min(rate, record["link"]) if record["link"] else rate


def reached(record):
    return record["view_bytes"] / record["loaded_s"]


def peer_goals(g, scheme, part):
    for ranks, word in (("1", "one process"), ("4", "four ranks")):
        records = part["found"].get(ranks, [])
        peers = sorted({r["name"] for r in records if not r["name"].startswith("tensorcast")})
        for mine in ("tensorcast C", "tensorcast Python"):
            g.at_most(f"{scheme}, {word}, {mine}: bytes received / bytes needed", 1.02,
                      [received(r) / part["size"] for r in by_name(records).get(mine, {}).values()], "x")
            for peer in peers:
                g.at_least(f"{scheme}, {word}, {mine}: against {peer}", 1.0, ratio(records, peer, mine))


def received(record):
    """By the daemon's own count, which `status` shows."""
    return sum(origin.get("received_bytes", 0) for origin in record["learned"].values())


def memory_goals(g, part):
    for view in ("whole", "half the columns"):
        for cache in ("auto", "4KiB"):
            over = [(r["peak_bytes"] - r["view_bytes"]) / 1048576 - STAGING_MIB for r in part["found"]
                    if r["view"] == view and r["extent_cache"] == cache]
            words = "extent cache counted" if cache == "auto" else "no extent cache"
            g.at_most(f"daemon memory over destination and staging, {view}, {words}", 64, over, " MiB")


def contest_table(title, gigabytes, records):
    named = by_name(records)
    lines = [f"### {title}: {gigabytes:.2f} GB", "",
             "| | loaded s | touched s | client CPU s/GB | server CPU s/GB | sent GB | verified |",
             "|---|---|---|---|---|---|---|"]
    for name in sorted(named, key=lambda n: median(r["loaded_s"] for r in named[n].values())):
        loaded, touched, cpu, sent = (values(records, name, key) for key in ("loaded_s", "touched_s", "cpu_s", "sent_bytes"))
        verified = sorted({v for v in values(records, name, "verified") if v})
        cells = [name, f"{median(loaded):.3f}", spread(touched, 3), f"{median(cpu) / gigabytes:.3f}", f"{median(values(records, name, 'server_s')) / gigabytes:.3f}",
                 f"{median(sent) / GB:.2f}" if sent else "-", "/".join(verified) or "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *problems(records), ""])


def far_table(records):
    lines = [f"### Far away: 50 ms before every answer, 100 MB/s a connection, {far_away.LOAD_BYTES / GB:.1f} GB", "",
             "| in all | GB/s | formula GB/s | C at most | C on average | C settled on |", "|---|---|---|---|---|---|"]
    for link in sorted({r["link"] for r in records}):
        rounds = sorted((r for r in records if r["link"] == link), key=reached)
        r = rounds[len(rounds) // 2]
        cells = [f"{r['link'] / GB:.1f} GB/s" if r["link"] else "no limit", f"{reached(r) / GB:.2f}", f"{formula(r, most(r)) / GB:.2f}",
                 most(r), f"{average(r):.1f}", r["learned"].get("parallel_requests", "-")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, ""])


def text(records, build, packages):
    version = subprocess.run([build / "tensorcast", "--version"], capture_output=True, text=True).stdout.strip()
    dates = sorted({part["date"] for part in records.values()})
    rounds = ", ".join(f"{section} {part['rounds']}" for section, part in records.items())
    g, tables = Goals(), []
    for section, cpu_goal in (("nginx plain", 0.22), ("nginx tls", 0.65)):
        if section in records:
            nginx_goals(g, section, records[section], cpu_goal)
            tables.append(contest_table(section, records[section]["size"] / GB, records[section]["found"]))
    if "far away" in records:
        far_goals(g, records["far away"])
        tables.append(far_table(records["far away"]["found"]))
    for scheme, server in (("gs", "fake-gcs-server"), ("s3", "SeaweedFS")):
        if scheme in records:
            peer_goals(g, scheme, records[scheme])
            tables += [contest_table(f"{scheme} ({server}), {word}", records[scheme]["size"] / GB, records[scheme]["found"].get(ranks, []))
                       for ranks, word in (("1", "one process"), ("4", "four ranks"))]
    if "memory" in records:
        memory_goals(g, records["memory"])
    return "\n".join([f"Measured on {', '.join(dates)}: {machine.describe()}; {version}; {packages}. "
                      f"Rounds: {rounds}. Servers and clients share the cores.", "", g.table(), *tables]).rstrip() + "\n"
