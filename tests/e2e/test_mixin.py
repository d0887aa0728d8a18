"""Alert rules and board of deploy/mixin: promtool's judgement, links that lead somewhere, and data from a daemon that works."""
import contextlib
import http.client
import json
import re
import shutil
import subprocess
import time
import urllib.parse

import pytest
import yaml

from checkpoints import blob, write
from stage import CLI, ROOT, MiB, free_port, soon
from store_scene import place
from test_metrics import samples

MIXIN = ROOT / "deploy/mixin"
RULES = [rule for group in yaml.safe_load((MIXIN / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads((MIXIN / "dashboard.json").read_text())["panels"]
EXPRESSIONS = {f"{panel['title']}, {target['refId']}": target["expr"] for panel in PANELS for target in panel.get("targets", [])}
needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="Debian's prometheus is missing")


@needs_prometheus
def test_promtool_takes_the_rules_and_each_alert_fires_when_it_should_and_only_then():
    for words in (("check", "rules", MIXIN / "alerts.yaml"), ("test", "rules", MIXIN / "tests.yaml")):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    cases = [case for test in yaml.safe_load((MIXIN / "tests.yaml").read_text())["tests"] for case in test["alert_rule_test"]]
    for wanted in (True, False):
        assert {case["alertname"] for case in cases if bool(case["exp_alerts"]) == wanted} == {rule["alert"] for rule in RULES}


def test_every_alert_leads_to_a_command_and_to_a_section_of_the_manual():
    headings = re.findall(r"^#+ +(.+)$", (ROOT / "docs/operations.md").read_text(), re.M)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    commands = set(re.findall(r"^  (\w+) ", subprocess.check_output([CLI, "--help"], text=True), re.M))
    for rule in RULES:
        notes = rule["annotations"]
        assert {"summary", "description", "command", "runbook_url"} == set(notes), rule["alert"]
        assert notes["runbook_url"].removeprefix("docs/operations.md#") in anchors, notes["runbook_url"]
        assert re.match(r"tensorcast (\w+)", notes["command"])[1] in commands, notes["command"]


def test_the_board_has_a_row_for_each_question():
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == [
        "Is it healthy?", "What is it doing?", "Why was this start slow?", "How do I roll it out?"]
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


@contextlib.contextmanager
def prometheus(folder, port):
    """Scrapes that port every second and has the rules; gives a function that asks it."""
    own = free_port()
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(MIXIN / "alerts.yaml")],
        "scrape_configs": [{"job_name": "tensorcast", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}))
    with open(folder / "prometheus.log", "w") as log:
        process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                    f"--web.listen-address=127.0.0.1:{own}"], stdout=log, stderr=log)

    def ask(expression):
        to = http.client.HTTPConnection("127.0.0.1", own, timeout=30)
        with contextlib.closing(to), contextlib.suppress(OSError, http.client.HTTPException, ValueError):  # it does not answer yet
            to.request("GET", "/api/v1/query?query=" + urllib.parse.quote(expression))
            return json.loads(to.getresponse().read()).get("data", {}).get("result")

    try:
        yield ask
    finally:
        process.kill()
        process.wait()


def concrete(expression):
    """Without the board's variables."""
    return re.sub(r'=~"\$\w+"', '=~".*"', expression).replace("$__rate_interval", "1m")


@needs_prometheus
def test_every_expression_gets_data_from_a_daemon_that_works_and_no_alert_fires(store_daemon, fake, models, tmp_path):
    write(models / "m", {"w": blob(1, MiB)})
    references = [f"disk:{models}/m", place(fake, "http", {"w": blob(2, MiB)}).reference]
    daemon = store_daemon(server={"metrics_address": "127.0.0.1:0"})
    port = int(daemon.status()["metrics_address"].rsplit(":", 1)[1])

    def load():
        for reference in references:
            daemon.cli.ok("load", reference)
        daemon.cli.ok("release", "--all")

    load()
    present = {name for name, _ in samples(port)}
    for what, expression in {**{rule["alert"]: rule["expr"] for rule in RULES}, **EXPRESSIONS}.items():
        named = set(re.findall(r"\b(?:tensorcast|process)_[a-z0-9_]+", expression))
        assert named and named <= present, (what, named - present)
    with prometheus(tmp_path, port) as ask:
        assert soon(lambda: ask("tensorcast_loads_total"), 120)
        end = time.monotonic() + 120
        missing = EXPRESSIONS
        while missing and time.monotonic() < end:
            load()
            time.sleep(0.5)
            missing = {what: expression for what, expression in missing.items() if not ask(concrete(expression))}
        assert not missing
        assert ask('ALERTS{alertstate="firing"}') == [] and ask("tensorcast_build_info")
