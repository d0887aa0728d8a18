#!/usr/bin/env python3
"""deploy/kubernetes as the tools of its formats take it: kubectl builds the kustomization, and the ServiceMonitor fits the published
definition of prometheus-operator, of which cloudcoil makes models. Both have to refuse a misspelt field. `make lint` calls it, with
the Python of setup/setup.sh lint; says nothing when all is well."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pydantic
import yaml
from cloudcoil.models.prometheus_operator.v1 import ServiceMonitor

FOLDER = Path(__file__).resolve().parents[1] / "deploy/kubernetes"


def build(folder):
    """Its manifests, or what kubectl says against it."""
    done = subprocess.run([Path(sys.executable).with_name("kubectl"), "kustomize", folder], capture_output=True, text=True)
    return (list(yaml.safe_load_all(done.stdout)), "") if done.returncode == 0 else ([], done.stderr)


def fits(monitor):
    """A model drops what it does not know."""
    try:
        return ServiceMonitor.model_validate(monitor).model_dump(mode="json", by_alias=True, exclude_unset=True) == monitor
    except pydantic.ValidationError:
        return False


def main():
    built, problem = build(FOLDER)
    (monitor,) = [part for part in built if part["kind"] == "ServiceMonitor"] or [None]
    if not monitor or not fits(monitor):
        return f"{FOLDER}: {problem or 'no valid ServiceMonitor'}"
    endpoint = monitor["spec"]["endpoints"][0]
    for wrong in ({"intervall": "30s"}, {"interval": 30}, {"relabelings": [{"sourceLabel": ["a"]}]}):
        if fits({**monitor, "spec": {**monitor["spec"], "endpoints": [endpoint | wrong]}}):
            return f"a ServiceMonitor with {wrong} is not refused"
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(FOLDER, copy, dirs_exist_ok=True)
        with open(Path(copy) / "kustomization.yaml", "a") as file:
            file.write("imagez: []\n")
        if build(copy)[0]:
            return "a kustomization with an unknown field is not refused"


if __name__ == "__main__":
    sys.exit(main())
