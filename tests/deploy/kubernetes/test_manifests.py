"""The manifests fit the schemas of Kubernetes and the house rules; each broken rule is noticed."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from harness import manifests
from harness.manifests import HOME, OVERLAYS, Manifest, built, faults, read, schema_faults, templates
from harness.tools import needs

from deploy.prometheus import RULES, operator
from streaming_job.contracts.topic import Component
from streaming_job.environment import refuse_unknown
from streaming_job.runtime.submitted import named as submitted_settings

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]

FILES = sorted(
    path
    for path in HOME.rglob("*.yaml")
    if path.name not in ("kustomization.yaml", "image-field.yaml")
    and path not in (HOME / "overlays/executors/driver.yaml", HOME / "successor/successor.yaml")
)
"""All manifests, without kustomize's own files and patches."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOME)))
def test_a_file_has_only_fields_that_kubernetes_knows(path: Path) -> None:
    objects = read(path)
    if path.parent.name != "templates":  # they lack what Spark adds
        assert [fault for item in objects for fault in schema_faults(item)] == []
    assert objects


def test_the_settings_are_known() -> None:
    lines = (HOME / "base" / "settings.env").read_text().splitlines()
    refuse_unknown(line.partition("=")[0] for line in lines if line and not line.startswith("#"))


def test_the_topics_job_prints_the_permissions_of_each_component() -> None:
    assert f"for component in {' '.join(Component)}; do" in topics_script()


def topics_script() -> str:
    (cron_job,) = read(HOME / "base" / "topics.yaml")
    pod = manifests.pod_of(cron_job)
    assert pod is not None
    return pod["containers"][0]["args"][0]


def test_the_topics_job_prints_the_permissions_also_where_a_topic_differs(tmp_path: Path) -> None:
    fraud = tmp_path / "fraud"
    fraud.write_text('#!/bin/sh\necho "$@"\ntest "$2" != topics\n')
    fraud.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-euc", topics_script()], env=variables, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("job permissions")] == [*Component]
    assert lines[-1].startswith("job topics ")
    assert done.returncode == 1


def test_the_key_groups_are_set_in_one_place() -> None:
    """Permissions are those of the job's number of groups: each has a transactional id of its own."""
    setting = re.compile("FRAUD_KEY_GROUPS|spark.fraud.key_groups")
    files = [path for path in HOME.rglob("*") if path.is_file() and path.name != "rules.yaml"]
    lines = [line for path in files for line in path.read_text().splitlines() if setting.search(line)]
    assert [line for line in lines if "#" not in line] == ["FRAUD_KEY_GROUPS=2"]


@needs("kubectl")
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_an_overlay_can_be_applied_again_with_other_images(overlay: Path) -> None:
    """The pods of a Job cannot be changed, and with OrderedReady one that cannot start is not replaced."""
    objects = built(overlay)
    assert "Job" not in {item["kind"] for item in objects}
    sets = [item for item in objects if item["kind"] == "StatefulSet"]
    assert all(item["spec"]["podManagementPolicy"] == "Parallel" for item in sets)


def test_the_rules_of_the_operator_are_the_tested_ones() -> None:
    assert operator.FILE.read_text() == operator.text(), "it is stale: run `make docs`"
    (rule,) = read(operator.FILE)
    tested = [yaml.safe_load(file.read_text())["groups"] for file in sorted(RULES.glob("*.yml"))]
    assert rule["spec"]["groups"] == [group for groups in tested for group in groups]


@needs("kubectl")
def test_the_dashboards_are_config_maps() -> None:
    maps = [item for item in built(HOME / "monitoring") if item["kind"] == "ConfigMap"]
    stored = sorted(path.name for path in (HOME.parent / "grafana" / "json").glob("*.json"))
    assert sorted(name for item in maps for name in item["data"]) == stored
    assert all(item["metadata"]["labels"]["grafana_dashboard"] == "1" for item in maps)


BESIDE = [HOME / name for name in ("monitoring", "successor", "archive", "audit")]
"""What is installed beside an overlay."""


@needs("kubectl")
@pytest.mark.parametrize("overlay", [*OVERLAYS, *BESIDE], ids=lambda path: path.name)
def test_an_overlay_fits_the_schemas(overlay: Path) -> None:
    assert [fault for item in built(overlay) for fault in schema_faults(item)] == []


@needs("kubectl")
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_an_overlay_obeys_the_house_rules(overlay: Path) -> None:
    assert faults([item for directory in (overlay, *BESIDE) for item in built(directory)]) == []


def test_prometheus_scrapes_what_the_rules_watch() -> None:
    """By the names of the jobs that its own configuration has, and at the ports of the services."""
    configured = yaml.safe_load((RULES.parent / "prometheus.yml").read_text())["scrape_configs"]
    services = [
        item for path in FILES for item in read(path) if item["kind"] == "Service" and "ports" in item["spec"]
    ]
    by_job = {
        item["metadata"]["labels"]["card-fraud/scrape-job"]: item
        for item in services
        if "card-fraud/scrape-job" in item["metadata"].get("labels", {})
    }
    assert sorted(by_job) == sorted(each["job_name"] for each in configured)
    for each in configured:
        (target,) = each["static_configs"][0]["targets"]
        (port,) = by_job[each["job_name"]]["spec"]["ports"]
        assert target.rpartition(":")[2] == str(port["port"])
    monitors = read(HOME / "monitoring" / "monitor.yaml")
    monitored = {item["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] for item in monitors}
    assert monitored == {item["metadata"]["labels"]["app.kubernetes.io/name"] for item in by_job.values()}


def test_spark_submit_and_the_operators_give_spark_the_same_properties() -> None:
    text = (HOME / "overlays" / "spark-submit" / "job.properties").read_text()
    lines = [line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#")]
    submitted = dict(lines)
    for role in ("driver", "executor"):
        assert (ROOT / submitted.pop(f"spark.kubernetes.{role}.podTemplateFile")).exists()
    assert submitted.pop("spark.kubernetes.submission.waitAppCompletion") == "false"
    assert manifests.PINNED.fullmatch(submitted.pop("spark.kubernetes.container.image"))
    refuse_unknown(submitted_settings(submitted))
    for name in ("apache", "kubeflow"):
        (application,) = read(HOME / "overlays" / f"{name}-operator" / "application.yaml")
        properties = application["spec"]["sparkConf"]
        properties.pop("spark.kubernetes.container.image", None)
        assert properties == submitted


@needs("kubectl")
@pytest.mark.parametrize("name", ["apache", "kubeflow"])
def test_an_operator_starts_the_pods_of_the_templates(name: str) -> None:
    pods = templates(built(HOME / "overlays" / f"{name}-operator"))
    (driver, executor), of_operator = pods[:2], pods[2:]
    assert [pod["spec"] for pod in of_operator] == [driver["spec"], executor["spec"]]


@needs("kubectl")
def test_executors_have_the_image_of_the_driver() -> None:
    (job,) = [item for item in built(HOME / "overlays" / "executors") if item["kind"] == "StatefulSet"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (variable,) = [entry for entry in container["env"] if entry["name"] == "IMAGE"]
    assert variable["value"] == container["image"]


@needs("kubectl")
def test_the_driver_may_start_and_remove_pods_and_nothing_else() -> None:
    """Spark asks for more with settings at their defaults, so each is turned off wherever a driver starts."""
    objects = built(HOME / "overlays" / "executors")
    (role,) = [item for item in objects if item["kind"] == "Role"]
    verbs = ["create", "get", "list", "watch", "delete", "deletecollection"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]
    (job,) = [item for item in objects if item["kind"] == "StatefulSet"]
    variables = {entry["name"]: entry.get("value") for entry in container_of(job)["env"]}
    properties = (HOME / "overlays" / "spark-submit" / "job.properties").read_text()
    submitted = dict(line.split(maxsplit=1) for line in properties.splitlines() if not line.startswith("#"))
    for given in (json.loads(variables["FRAUD_SPARK"]), submitted):
        assert given["spark.kubernetes.executor.disableConfigMap"] == "true"
        assert given["spark.kubernetes.driver.ownPersistentVolumeClaim"] == "false"
        assert given["spark.kubernetes.driver.service.deleteOnTermination"] == "false"


@needs("kubectl")
def test_the_api_server_is_reached_at_its_service_and_at_its_endpoints() -> None:
    """Most networks apply policies after the service's address was replaced by an endpoint's."""
    objects = built(HOME / "overlays" / "executors")
    (policy,) = [item for item in objects if manifests.named(item) == "NetworkPolicy/api-server"]
    allowed = {
        port["port"]: peer["ipBlock"]["cidr"]
        for rule in policy["spec"]["egress"]
        for port in rule["ports"]
        for peer in rule["to"]
    }
    assert {*allowed} == {443, 6443}
    assert len({*allowed.values()}) == 2


@needs("kubectl")
def test_prometheus_and_the_ingress_reach_the_sidecar() -> None:
    objects = built(HOME / "overlays" / "local")
    (policy,) = [item for item in objects if manifests.named(item) == "NetworkPolicy/sidecar"]
    (rule,) = policy["spec"]["ingress"]
    namespaces = [
        peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in rule["from"]
    ]
    assert namespaces == ["monitoring", "ingress"]


def documented(words: str) -> Manifest:
    """The first block of docs/deployment.md after some words."""
    text = (ROOT / "docs" / "deployment.md").read_text().partition(words)[2]
    return yaml.safe_load(re.findall(r"(?:^    .*\n|^\n)+", text.partition(":\n\n")[2], re.MULTILINE)[0])


@needs("kubectl")
def test_the_documented_overlay_and_takeover_are_what_kustomize_takes(tmp_path: Path) -> None:
    overlay, takeover = (
        documented("Write an overlay of your own"),
        documented("**Another number of key groups**"),
    )
    overlay["resources"] = [os.path.relpath(HOME / "overlays" / "local", tmp_path)]
    digest = f"sha256:{1:064}"
    overlay["images"] = [{**image, "digest": digest} for image in overlay["images"]]
    (settings,), (changed,) = overlay["configMapGenerator"], takeover["configMapGenerator"]
    settings["literals"] += changed["literals"]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    objects = built(tmp_path)
    containers = [item["containers"][0] for item in map(manifests.pod_of, objects) if item]
    assert [container["image"].partition("@")[2] for container in containers] == 3 * [digest]
    (data,) = [item["data"] for item in objects if manifests.named(item) == "ConfigMap/settings"]
    assert data["FRAUD_JOB_ID"] == "card-fraud"
    (job,) = [item for item in objects if item["kind"] == "StatefulSet"]
    (state,) = [mount for mount in container_of(job)["volumeMounts"] if mount["name"] == "state"]
    for name in ("FRAUD_CHECKPOINT", "FRAUD_PREDECESSOR_CHECKPOINT"):
        assert data[name].startswith(f"{state['mountPath']}/")
    overridden = {entry["name"] for entry in container_of(job).get("env", [])}
    assert not overridden & {line.partition("=")[0] for line in changed["literals"]}


@needs("kubectl")
def test_the_documented_successor_is_the_job_on_the_same_volume(tmp_path: Path) -> None:
    overlay = documented("**Without that pause**")
    overlay["resources"] = [os.path.relpath(HOME / "successor", tmp_path)]
    overlay["images"] = [{**image, "digest": f"sha256:{1:064}"} for image in overlay["images"]]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    settings, successor = sorted(built(tmp_path), key=lambda item: item["kind"])
    (job,) = [item for item in built(HOME / "overlays" / "local") if item["kind"] == "StatefulSet"]
    refuse_unknown(settings["data"])
    assert faults([successor]) == faults([])
    pods = [manifests.pod_of(item) or {} for item in (job, successor)]
    for pod in pods:
        (container,) = pod["containers"]
        del container["image"]
    pods[0]["volumes"].insert(0, {"name": "state", "persistentVolumeClaim": {"claimName": "state-job-0"}})
    pods[0]["containers"][0]["envFrom"].append({"configMapRef": {"name": settings["metadata"]["name"]}})
    del pods[1]["affinity"]
    assert pods[0] == pods[1]


@needs("kubectl")
def test_a_job_has_the_time_that_a_clean_stop_may_take() -> None:
    (job,) = [item for item in built(HOME / "overlays" / "local") if item["kind"] == "StatefulSet"]
    assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 20 + 30
    assert job["spec"]["replicas"] == 1


def container_of(item: Manifest) -> Manifest:
    return item["spec"]["template"]["spec"]["containers"][0]


BREAKS: dict[str, Callable[[Manifest], object]] = {
    "may run as root": lambda item: item["spec"]["template"]["spec"]["securityContext"].pop("runAsNonRoot"),
    "no seccomp": lambda item: item["spec"]["template"]["spec"]["securityContext"].pop("seccompProfile"),
    "FRAUD_...": lambda item: item["spec"]["template"]["spec"].pop("enableServiceLinks"),
    "namespace of the node": lambda item: item["spec"]["template"]["spec"].update(hostNetwork=True),
    "fill the node's disk": lambda item: item["spec"]["template"]["spec"]["volumes"][0].update(emptyDir={}),
    "a path of the node": lambda item: item["spec"]["template"]["spec"]["volumes"][0].update(hostPath={}),
    "may gain privileges": lambda item: container_of(item)["securityContext"].pop("allowPrivilegeEscalation"),
    "root file system": lambda item: container_of(item)["securityContext"].pop("readOnlyRootFilesystem"),
    "capabilities": lambda item: container_of(item)["securityContext"].pop("capabilities"),
    "lacks limits": lambda item: container_of(item)["resources"].pop("limits"),
    "lacks requests": lambda item: container_of(item)["resources"].pop("requests"),
    "digest": lambda item: container_of(item).update(image="registry.bank.example/card-fraud-job:latest"),
    "as a variable": lambda item: container_of(item).update(envFrom=[{"secretRef": {"name": "kafka"}}]),
    "Kafka does not answer": lambda item: container_of(item).update(
        livenessProbe={"httpGet": {"path": "/readyz", "port": 8000}}
    ),
}
"""Text of a fault -> how it is made."""


@needs("kubectl")
@pytest.mark.parametrize("text", BREAKS)
def test_a_broken_rule_is_noticed(text: str) -> None:
    objects = built(HOME / "overlays" / "local")
    (job,) = [item for item in objects if item["kind"] == "StatefulSet"]
    BREAKS[text](job)
    assert any(text in fault for fault in faults(objects))


@needs("kubectl")
def test_an_overlay_without_default_deny_or_restricted_pods_is_noticed() -> None:
    objects = built(HOME / "overlays" / "local")
    fewer = [item for item in objects if manifests.named(item) != "NetworkPolicy/default-deny"]
    assert faults(fewer) == ["no NetworkPolicy denies all traffic by default"]
    fewer = [item for item in objects if item["kind"] != "Namespace"]
    assert faults(fewer) == ["the namespace does not enforce PodSecurity restricted"]


@needs("kubectl")
def test_the_pods_that_spark_starts_obey_the_rules_too() -> None:
    objects = built(HOME / "overlays" / "executors")
    assert len(templates(objects)) == 2
    (pods,) = [item for item in objects if item["kind"] == "ConfigMap" and "executor.yaml" in item["data"]]
    pods["data"]["executor.yaml"] = pods["data"]["executor.yaml"].replace("drop: [ALL]", "add: [SYS_ADMIN]")
    assert any("capabilities" in fault for fault in faults(objects))
