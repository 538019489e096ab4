"""The manifests agree with each other, with the image, and with what the service and the project file take."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from headgate.cli.options import TOKEN
from headgate.config.project import load_project
from headgate.runtime.flows.definitions import read_statements
from headgate.service.gate import LOOPBACK
from headgate.service.permissions import ALIVE, READY
from tests.deploy.manifests import (
    DEPLOY,
    Manifest,
    container,
    exec_form,
    instructions,
    manifests,
    understood,
    workloads,
)

ALL = manifests()
PODS = {name: each["spec"]["template"]["spec"] for name, each in workloads().items()}
NAMES = sorted(PODS)


def labels_of(workload: Manifest) -> set[tuple[str, str]]:
    return set(workload["spec"]["template"]["metadata"]["labels"].items())


def selected(labels: dict[str, str]) -> set[str]:
    return {name for name, each in workloads().items() if set(labels.items()) <= labels_of(each)}


def ports_of(name: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(workloads()[name])["ports"]}


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_selects_its_own_pods(name: str) -> None:
    assert selected(workloads()[name]["spec"]["selector"]["matchLabels"]) == {name}


@pytest.mark.parametrize("name", [name for kind, name in ALL if kind == "Service"])
def test_a_service_leads_to_ports_that_its_pods_have(name: str) -> None:
    service = ALL["Service", name]["spec"]
    (behind,) = selected(service["selector"])
    for port in service["ports"]:
        assert ports_of(behind)[port["targetPort"]] == port["port"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_pod_refers_to_is_there(name: str) -> None:
    only = container(workloads()[name])
    for variable in only["env"]:
        secret = variable.get("valueFrom", {}).get("secretKeyRef")
        if secret is not None:
            assert secret["key"] in ALL["Secret", secret["name"]]["stringData"]
    volumes = {volume["name"]: volume for volume in PODS[name]["volumes"]}
    assert {mount["name"] for mount in only["volumeMounts"]} == volumes.keys()
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in ALL
        if "configMap" in volume:
            data = ALL["ConfigMap", volume["configMap"]["name"]]["data"]
            assert {item["key"] for item in volume["configMap"]["items"]} == data.keys()
    probes = [probe for kind, probe in only.items() if kind.endswith("Probe")]
    assert len(probes) == 2
    assert all((probe.get("httpGet") or probe["tcpSocket"])["port"] in ports_of(name) for probe in probes)
    given = {variable["name"] for variable in only["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(only["args"]))) <= given


@pytest.mark.parametrize("name", NAMES)
def test_pods_run_the_image_as_its_user_and_may_do_little(name: str) -> None:
    pod, only = PODS[name], container(workloads()[name])
    version = re.search(r'^version = "(.*)"', (DEPLOY.parent / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None and only["image"] == f"headgate:{version[1]}"
    (user,) = [rest for instruction, rest in instructions() if instruction == "USER"]
    asked = pod["securityContext"]
    assert f"{asked['runAsUser']}:{asked['runAsGroup']}" == user and asked["runAsNonRoot"]
    assert only["securityContext"]["readOnlyRootFilesystem"]
    assert not only["securityContext"]["allowPrivilegeEscalation"]
    # Kubernetes would put SPARK_MASTER_PORT=tcp://… into the environment, which Spark takes for a port.
    assert pod["enableServiceLinks"] is False
    assert set(only["resources"]) == {"requests", "limits"}


def test_the_service_is_asked_where_it_answers() -> None:
    only = container(workloads()["headgate"])
    said = understood(only["args"])
    assert said["port"] == ports_of("headgate")["http"]
    assert "headgate" in said["allowed_hosts"]
    assert workloads()["headgate"]["spec"]["replicas"] == 1
    alive, ready = only["livenessProbe"]["httpGet"], only["readinessProbe"]["httpGet"]
    assert (alive["path"], ready["path"]) == (ALIVE, READY)
    # The gate lets only the first pass by whatever name it is asked.
    assert {header["name"]: header["value"] for header in ready["httpHeaders"]}["Host"] in LOOPBACK
    assert any(variable["name"] == TOKEN for variable in only["env"])
    mounted = {mount["mountPath"] for mount in only["volumeMounts"]}
    assert str(said["project"]) in mounted
    (volume,) = [rest for instruction, rest in instructions() if instruction == "VOLUME"]
    assert volume in mounted
    assert exec_form("ENTRYPOINT") == ["headgate"] and "command" not in only
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    names = [name.replace("$(NAMESPACE)", kustomization["namespace"]) for name in said["allowed_hosts"]]
    host, port = target.split(":")
    assert host in names and int(port) == said["port"]


def test_the_secret_of_the_example_does_not_start_a_service() -> None:
    assert ALL["Secret", "headgate"]["stringData"][TOKEN] == ""


def test_the_project_is_right_as_the_pod_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = container(workloads()["headgate"])
    for variable in only["env"]:
        monkeypatch.setenv(variable["name"], "10.1.2.3")
    (volume,) = [each["configMap"] for each in PODS["headgate"]["volumes"] if "configMap" in each]
    data = ALL["ConfigMap", volume["name"]]["data"]
    # As the kubelet lays it out: files in a hidden folder, links to them beside it.
    for item in volume["items"]:
        file = tmp_path / "..data" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data[item["key"]])
        first = tmp_path / Path(item["path"]).parts[0]
        first.symlink_to(Path("..data") / first.name)
    project = load_project(tmp_path)
    (flow,) = project.flow_files
    assert flow == tmp_path / "flows" / "revenue.sql"
    (statement,) = read_statements(project.flow_files)
    assert statement.name == "revenue"
    assert project.spark["spark.driver.host"] == "10.1.2.3"
    master = urlsplit(project.spark["spark.master"])
    (port,) = ALL["Service", str(master.hostname)]["spec"]["ports"]
    assert master.port == port["port"]
    worker = container(workloads()["spark-worker"])
    assert project.spark["spark.master"] in worker["args"]
    # Executors read and write the service's own files, by the same path.
    storage = {mount["mountPath"] for mount in worker["volumeMounts"] if mount["name"] == "storage"}
    assert any(Path(project.storage).is_relative_to(place) for place in storage)
    assert project.storage not in storage
    asked = worker["args"][worker["args"].index("--memory") + 1]
    assert asked == project.spark["spark.executor.memory"]
    assert ALL["PersistentVolumeClaim", "headgate-storage"]["spec"]["accessModes"] == ["ReadWriteMany"]


def test_only_headgates_own_pods_reach_spark() -> None:
    policies = [each["spec"] for (kind, _), each in ALL.items() if kind == "NetworkPolicy"]
    for name in NAMES:
        open_ports = set[object]()
        mine = [policy for policy in policies if name in selected(policy["podSelector"]["matchLabels"])]
        for rule in [rule for policy in mine for rule in policy["ingress"]]:
            for peer in rule.get("from", ()):
                assert selected(peer["podSelector"]["matchLabels"]) == set(NAMES) and "namespaceSelector" not in peer
            if "from" not in rule:
                open_ports |= {port["port"] for port in rule["ports"]}
        assert mine and open_ports == ({"http"} if name == "headgate" else set())
