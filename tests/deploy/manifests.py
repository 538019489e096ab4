"""The files of `deploy/`, read as those who use them would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from headgate.cli.main import cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
UNIT = DEPLOY / "systemd" / "headgate.service"

Manifest = dict[str, Any]


def manifests() -> dict[tuple[str, str], Manifest]:
    """Everything that `kubectl apply -k` would make, and the Secret that is to be made by hand, by kind and name."""
    folder = DEPLOY / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    found: dict[tuple[str, str], Manifest] = {}
    for file in (*kustomization["resources"], "secret.example.yaml"):
        for each in yaml.safe_load_all((folder / file).read_text()):
            assert found.setdefault((each["kind"], each["metadata"]["name"]), each) is each
    return found


def workloads() -> dict[str, Manifest]:
    """What makes pods, by name."""
    return {name: each for (kind, name), each in manifests().items() if kind in ("StatefulSet", "Deployment")}


def container(workload: Manifest) -> Manifest:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


def exec_form(name: str) -> list[str]:
    """The last instruction of that name, which is a JSON list."""
    return list(json.loads([rest for instruction, rest in instructions() if instruction == name][-1]))


def understood(arguments: Sequence[str]) -> dict[str, Any]:
    """What `headgate` makes of its arguments, without running the command; wrong usage raises."""
    name, *rest = arguments
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, f"headgate has no command {name}"
    return command.make_context(name, list(rest)).params


def expressions() -> Iterator[tuple[str, str, str]]:
    """Every PromQL expression of dashboard and alerts: where it stands, itself, and the text that shows its labels."""
    for panel in json.loads((DEPLOY / "grafana" / "headgate.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], rule["annotations"]["summary"]
