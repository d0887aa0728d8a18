"""The manifests of deploy/kubernetes against each other, the daemon's configuration and the rights that they give it. `make lint` holds
them against the schemas of Kubernetes and of prometheus-operator, and lets kubectl build them."""
import json
import os
import re
import subprocess

import pytest
import yaml

from checkpoints import blob, write
from stage import CLI, DAEMON, ROOT, MiB, for_everybody

FOLDER = ROOT / "deploy/kubernetes"
PARTS = {name: yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
         for name in ("daemonset", "service", "servicemonitor", "networkpolicy", "kustomization", "vllm")}
POD = PARTS["daemonset"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
RIGHTS = CONTAINER["securityContext"]
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "Gi": 1 << 30, "": 1}


def test_every_file_is_in_the_base_or_an_example():
    used = {*PARTS["kustomization"]["resources"], *PARTS["kustomization"]["configMapGenerator"][0]["files"]}
    assert {path.name for path in FOLDER.iterdir()} == used | {"kustomization.yaml", "vllm.yaml"}
    (generated,), (image,) = PARTS["kustomization"]["configMapGenerator"], PARTS["kustomization"]["images"]
    assert generated["name"] == POD["volumes"][0]["configMap"]["name"] and image["name"] == CONTAINER["image"]
    assert f"{image['newName']}:{image['newTag']}" == PARTS["vllm"]["spec"]["template"]["spec"]["initContainers"][0]["image"]
    assert image["newTag"] == (ROOT / "VERSION").read_text().strip()


def test_selectors_ports_and_volumes_agree():
    labels = PARTS["daemonset"]["spec"]["template"]["metadata"]["labels"]
    (service_port,), (endpoint,) = PARTS["service"]["spec"]["ports"], PARTS["servicemonitor"]["spec"]["endpoints"]
    assert labels == PARTS["daemonset"]["spec"]["selector"]["matchLabels"] == PARTS["service"]["spec"]["selector"]
    assert labels == PARTS["service"]["metadata"]["labels"] == PARTS["servicemonitor"]["spec"]["selector"]["matchLabels"]
    assert labels == PARTS["networkpolicy"]["spec"]["podSelector"]["matchLabels"]
    port = yaml.safe_load((FOLDER / "store_daemon_config.yaml").read_text())["server"]["metrics_address"].rsplit(":", 1)[1]
    (admitted,) = PARTS["networkpolicy"]["spec"]["ingress"]
    assert {int(port)} == {CONTAINER["ports"][0]["containerPort"], service_port["port"], admitted["ports"][0]["port"]}
    assert service_port["name"] == endpoint["port"] == CONTAINER["ports"][0]["name"]
    for pod in (POD, PARTS["vllm"]["spec"]["template"]["spec"]):
        mounted = {mount["name"] for container in [*pod["containers"], *pod.get("initContainers", [])] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    paths = {volume["hostPath"]["path"] for volume in POD["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert all(mounts[volume["name"]] == volume["hostPath"]["path"] for volume in POD["volumes"] if "hostPath" in volume)
    for volume in PARTS["vllm"]["spec"]["template"]["spec"]["volumes"]:
        assert volume["hostPath"]["path"] in paths


def test_the_pod_has_the_memory_that_the_configuration_allows_the_daemon():
    command = [DAEMON, "--config", FOLDER / "store_daemon_config.yaml", "--print-config"]
    config = yaml.safe_load(subprocess.check_output(command, text=True))

    def size(text):
        number, unit = re.fullmatch(r"([\d.]+)\s*(\w*)", str(text)).groups()
        return float(number) * UNITS[unit]

    names = ("host_budget", "metadata_budget", "staging_budget", "extent_cache", "pool_budget", "locked_pages_budget")
    needed = sum(size(config["memory"][name]) for name in names) + 200e6
    limit = size(CONTAINER["resources"]["limits"]["memory"])
    assert needed <= limit < needed + (1 << 30) and CONTAINER["resources"]["requests"]["memory"] == CONTAINER["resources"]["limits"]["memory"]
    grace = float(config["server"]["shutdown_grace"].removesuffix("s"))
    assert POD["terminationGracePeriodSeconds"] > grace + 15


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a daemon other rights")
def test_a_daemon_with_the_rights_of_the_pod_serves_clients_of_the_group(start, models):
    group = RIGHTS["runAsGroup"]
    assert PARTS["vllm"]["spec"]["template"]["spec"]["securityContext"]["supplementalGroups"] == [group]
    write(models / "m", {"w": blob(1, MiB)})
    (models / "m/model.safetensors").chmod(0o644)
    os.chown(models / "m/model.safetensors", 4711, 4711)
    capabilities = RIGHTS["capabilities"]
    assert capabilities["drop"] == ["ALL"] and not RIGHTS["allowPrivilegeEscalation"] and RIGHTS["runAsUser"] == 0
    bounding = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities["add"])])
    daemon = start(running=False)
    daemon.folder.chmod(0o755)
    daemon.start(through=["setpriv", f"--regid={group}", "--clear-groups", f"--bounding-set={bounding}", "--inh-caps=-all", "--no-new-privs"])

    def load(*groups):
        words = ["setpriv", "--reuid=4712", "--regid=4712", *groups, "--inh-caps=-all", for_everybody(CLI), "--socket", daemon.socket]
        return subprocess.run([*map(str, words), "load", f"disk:{models}/m", "--json"], capture_output=True, text=True, timeout=60, cwd="/")

    done = load(f"--groups={group}")
    assert done.returncode == 0 and json.loads(done.stdout)["change_detection"]["by"] == "lease", done.stderr
    assert "SOCKET_FORBIDDEN" in load("--clear-groups").stdout
