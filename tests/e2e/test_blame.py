"""What `blame` and `plot` tell of loads that have ended: what they waited for, step by step, and as a picture."""
import json
import re
import time
from xml.etree import ElementTree

import pytest

from checkpoints import blob, write
from group_scene import WORLD, arrays, group, load_all, slices, strategy  # noqa: F401
from stage import MiB, soon
from store_scene import place
from test_log import lines
from test_status import on_terminal

CAUSES = {"queue", "group", "headers", "plan", "store", "disk", "copy", "peers", "memory", "verify", "handoff"}
SVG = "{http://www.w3.org/2000/svg}"


def listed(daemon):
    """Every row adds up, the slowest is the first."""
    loads = daemon.cli.ok("blame", "--json").report["loads"]
    for row in loads:
        assert set(row["waited_for"]) <= CAUSES and all(ms > 0 for ms in row["waited_for"].values()), row
        assert abs(sum(row["waited_for"].values()) - row["total_ms"]) <= 0.01 * row["total_ms"] + 0.1, row
    assert [row["total_ms"] for row in loads] == sorted((row["total_ms"] for row in loads), reverse=True)
    return loads


def told(daemon, load_id):
    """The chain has no gaps."""
    one = daemon.cli.ok("blame", load_id, "--json").report
    at = 0
    for link in one["chain"]:
        assert link["name"] in CAUSES and abs(link["start_ms"] - at) < 0.01 * one["total_ms"] + 0.1, one
        at = link["start_ms"] + link["ms"]
    assert abs(at - one["total_ms"]) < 0.01 * one["total_ms"] + 0.1 and abs(sum(link["share"] for link in one["chain"]) - 1) < 0.01
    return one


def drawn(text):
    """The lanes of a picture by name; nothing in it moves, runs or comes from elsewhere."""
    root = ElementTree.fromstring(text)
    assert root.tag == SVG + "svg" and root.get("viewBox")
    assert {element.tag for element in root.iter()} <= {SVG + tag for tag in ("svg", "g", "rect", "text", "title", "path")}
    assert not [key for element in root.iter() for key in element.attrib if key.startswith("on") or key.endswith("href")]
    return {element.get("data-lane"): element for element in root.iter(SVG + "g")}


@pytest.fixture
def slow(fake, store_daemon):
    """A daemon, and a model in a store that answers requests for the middle of its bytes after daemon.wait(seconds)."""
    placed = place(fake, "http", {"w": blob(1, 3 * MiB)})
    daemon = store_daemon()
    daemon.wait = lambda seconds: placed.fault({"delay": seconds}, times=0, match={"covers": 2_000_000})
    daemon.placed = placed
    return daemon


def test_without_loads_there_is_nothing_to_blame(daemon):
    assert listed(daemon) == [] and "no load has ended" in daemon.cli.ok("blame").out


def test_a_load_from_a_slow_store_waited_for_it(slow, models):
    slow.wait(2)
    write(models / "m", {"w": blob(2, MiB)})
    quick = slow.cli.ok("load", f"disk:{models}/m", "--json").report
    late = slow.cli.ok("load", slow.placed.reference, "--json").report
    rows = listed(slow)
    assert [row["load_id"] for row in rows] == [late["load_id"], quick["load_id"]]
    assert rows[0]["artifact"] == slow.placed.reference and rows[0]["code"] == "OK" and rows[0]["pid"] > 0
    assert rows[0]["total_ms"] >= late["ms"]["total"] * 0.99 and rows[0]["waited_for"]["store"] >= 1000
    assert "disk" not in rows[0]["waited_for"] and "store" not in rows[1]["waited_for"], rows
    page = slow.cli.ok("blame").out
    assert page.index(slow.placed.reference) < page.index(f"disk:{models}/m") and re.search(r"store \d+ %", page)
    assert soon(lambda: [line["waited_for"] for line in lines(slow, "load_done") if line["load_id"] == late["load_id"]] == ["store"]), slow.log()

    one = told(slow, late["load_id"])
    names = [link["name"] for link in one["chain"]]
    assert {"headers", "store"} <= set(names) and names.index("headers") < names.index("store")
    (store,) = [link for link in one["chain"] if link["name"] == "store"]
    assert "3.00 MiB in " in store["detail"], store
    assert any("prewarm" in text for text in one["advice"]) and any("slow store" in text for text in one["advice"])
    page = slow.cli.ok("blame", late["load_id"]).out
    assert all(text in page for text in one["advice"]) and "store" in page and " %" in page
    assert all("short step" in line for line in page.splitlines() if "   0 %  " in line), page


def test_a_resident_replica_needs_no_advice(daemon, models):
    write(models / "m", {"w": blob(1, MiB)})
    first, second = (daemon.cli.ok("load", f"disk:{models}/m", "--json").report for _ in range(2))
    assert second["from_replica"]
    assert told(daemon, second["load_id"])["advice"] == []
    rows = {row["load_id"]: row for row in listed(daemon)}
    assert rows[first["load_id"]]["origin"] == "read" and rows[second["load_id"]]["origin"] == "resident"


def test_a_load_that_is_given_up_is_kept_with_what_it_waited_for(slow):
    slow.wait(3600)
    command = slow.cli.spawn("load", slow.placed.reference)
    assert soon(lambda: slow.status()["loads"])
    command.terminate()
    command.communicate()
    assert soon(lambda: listed(slow))
    (row,) = listed(slow)
    assert row["code"] == "CANCELLED" and row["waited_for"]["store"] > 0
    told(slow, row["load_id"])
    assert drawn(slow.cli.ok("plot", row["load_id"]).out)


def test_a_load_that_fails_is_kept_without_secrets(daemon):
    assert daemon.cli.run("load", "https://user:hunter2@127.0.0.1:1/models/m?token=hunter3").failed
    (row,) = listed(daemon)
    assert row["code"] != "OK" and "127.0.0.1" in row["artifact"]
    outputs = [daemon.cli.ok(*words).out for words in (["blame"], ["blame", "--json"], ["blame", row["load_id"]], ["plot", row["load_id"]])]
    assert not [out for out in outputs if "hunter" in out]
    assert f"TENSORCAST_LOAD_ID={row['load_id']}" in outputs[2], "where the reason is"


def test_the_list_says_when_and_a_terminal_gets_the_slowest(daemon, models):
    """And those that failed, however quickly."""
    write(models / "m", {"w": blob(1, MiB)})
    for _ in range(21):
        daemon.cli.ok("load", f"disk:{models}/m")
    assert daemon.cli.run("load", "/etc").failed
    rows = daemon.cli.ok("blame").out.splitlines()
    begun = time.localtime(listed(daemon)[0]["begun_unix_ms"] // 1000)
    assert len(rows) == 1 + 22 and time.strftime("%m-%d %H:%M:%S", begun) in rows[1], rows[:2]
    (failed,) = [row for row in rows if row.endswith("PERMISSION_DENIED")]
    code, page = on_terminal(daemon, 200, "blame")
    shown = page.splitlines()
    slowest = rows[1:21]
    wanted = slowest + [failed] * (failed not in slowest)
    assert code == 0 and f"and {22 - len(wanted)} quicker ones" in shown[-1], shown
    assert shown[1:-1] == wanted, (shown, rows)


def test_what_is_not_kept_is_said_to_be_so(daemon):
    for command in ("blame", "plot"):
        outcome = daemon.cli.run(command, "nosuchload")
        assert outcome.status == "NOT_FOUND" and "nosuchload" in outcome.err and "256" in outcome.err, outcome
    assert daemon.cli.run("plot").code == 2


def test_explaining_and_asking_for_memory_that_is_not_there_is_no_load(daemon, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon.cli.ok("explain", f"disk:{models}/m")
    assert listed(daemon) == []


def test_a_picture_has_a_lane_for_each_thread(daemon, models, tmp_path):
    write(models / "m", {"w": blob(1, 40 * MiB)})
    report = daemon.cli.ok("load", f"disk:{models}/m", "--json", "--memory", "copied").report
    text = daemon.cli.ok("plot", report["load_id"]).out
    lanes = drawn(text)
    assert {"waited for", "load"} < set(lanes) and any(re.fullmatch(r"worker \d+", name) for name in lanes), set(lanes)
    assert all(len(list(lane)) > 1 for lane in lanes.values()), "an empty lane"
    assert report["load_id"] in text and f"disk:{models}/m" in text
    daemon.cli.ok("plot", report["load_id"], "--out", tmp_path / "load.svg")
    assert (tmp_path / "load.svg").read_text() == text


def test_names_in_a_picture_are_text(daemon, models):
    name = "a\"&<script>\x01\x1b[2J\uffff"
    write(models / name, {"w": blob(1, MiB)})
    report = daemon.cli.ok("load", f"disk:{models}/{name}", "--json").report
    text = daemon.cli.ok("plot", report["load_id"]).out
    drawn(text)
    assert "&lt;script&gt;" in text
    for words in (["blame"], ["blame", report["load_id"]]):
        assert "\x1b" not in daemon.cli.ok(*words).out


def test_ranks_of_a_group_have_a_lane_each(start, models, arrays):
    daemon = start(**strategy())
    reports = load_all(daemon, models, [group(rank, *slices(rank)) for rank in range(WORLD)])
    for report in reports:
        lanes = drawn(daemon.cli.ok("plot", report["load_id"]).out)
        assert {f"rank {rank}" for rank in range(WORLD)} <= set(lanes), set(lanes)
    assert all(row["waited_for"].get("group", 0) > 0 for row in listed(daemon)), "all but the last waited for the others, and that one for their runs"


# --- load --trace ---

def test_a_trace_file_has_the_stages_and_a_lane_for_each_thread(either, models, tmp_path):
    write(models / "m", {"w": blob(1, 40 * MiB)})
    report = either.ok("load", f"{models}/m", "--json", "--memory", "copied", "--trace", tmp_path / "t.json").report
    content = json.loads((tmp_path / "t.json").read_text())
    spans = [event for event in content["traceEvents"] if event["ph"] == "X"]
    lanes = {event["tid"]: event["args"]["name"] for event in content["traceEvents"] if event["name"] == "thread_name"}
    by_name = {span["name"]: span for span in spans}
    load = by_name["load"]
    assert {"load", "resolve", "plan", "execute", "blocks"} <= set(by_name) and set(lanes.values()) >= {"load"}
    assert {span["tid"] for span in spans} <= set(lanes) and any(re.fullmatch(r"worker \d+", name) for name in lanes.values())
    assert load["args"]["load_id"] == report["load_id"] and load["args"]["read_bytes"] == report["bytes"]["read"]
    assert load["dur"] >= 0.99e3 * report["ms"]["total"]
    for span in spans:
        assert load["ts"] <= span["ts"] and span["dur"] >= 0 and span["ts"] + span["dur"] <= load["ts"] + load["dur"], span
    for lane in lanes:
        ordered = sorted((span for span in spans if span["tid"] == lane and span is not load), key=lambda span: span["ts"])
        for one, after in zip(ordered, ordered[1:]):
            assert one["ts"] + one["dur"] <= after["ts"], "spans of a lane lie one behind the other"
    assert sum(span["args"].get("bytes", 0) for span in spans) == 40 * MiB


def test_a_trace_file_that_cannot_be_written_fails_before_the_load(daemon, models, tmp_path):
    write(models / "m", {"w": blob(1, MiB)})
    outcome = daemon.cli.run("load", f"disk:{models}/m", "--trace", tmp_path / "none" / "t.json")
    assert outcome.failed and str(tmp_path / "none") in outcome.err and listed(daemon) == []
    assert daemon.cli.run("load", f"disk:{models}/m", "--trace", "-").code == 2 and listed(daemon) == []


def test_a_load_that_fails_leaves_the_trace_file_as_it_was(daemon, models, tmp_path):
    (tmp_path / "t.json").write_text("before")
    assert daemon.cli.run("load", f"disk:{models}/none", "--trace", tmp_path / "t.json").failed
    assert (tmp_path / "t.json").read_text() == "before"
