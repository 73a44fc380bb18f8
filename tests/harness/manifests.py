"""Manifests of Kubernetes: reading, building with kubectl, and the house rules that each object must obey."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from harness.tools import find
from streaming_job.environment import refuse_unknown

Manifest = dict[str, Any]
HOME = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = sorted(path.parent for path in HOME.glob("overlays/*/kustomization.yaml"))
VERSIONS = ("1.31", "1.34", "1.37")
"""Releases of Kubernetes against whose schemas the manifests are checked."""
CUSTOM = {"PrometheusRule", "ServiceMonitor", "SparkApplication"}
"""Kinds of operators, whose schemas are not Kubernetes's."""
PINNED = re.compile(r".+@sha256:[0-9a-f]{64}")


def read(path: Path) -> list[Manifest]:
    """Return the objects of a file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def built(overlay: Path) -> list[Manifest]:
    """Return the objects of an overlay or another directory with a kustomization, by kubectl."""
    return list(yaml.safe_load_all(_built(overlay)))


@cache
def _built(overlay: Path) -> str:
    command = [str(find("kubectl")), "kustomize", str(overlay)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def schema_faults(manifest: Manifest) -> list[str]:
    """Return where an object is not what the schemas of Kubernetes say, unknown fields included."""
    if manifest["kind"] in CUSTOM:
        return []
    faults = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{named(manifest)}, {version}: {error.message}")
    return faults


def named(manifest: Manifest) -> str:
    """Return kind and name of an object."""
    return f"{manifest['kind']}/{manifest['metadata'].get('name')}"


def pod_of(manifest: Manifest) -> Manifest | None:
    """Return the specification of the pods of an object; None if it has none."""
    if manifest["kind"] == "Pod":
        return manifest["spec"]
    if manifest["kind"] in CUSTOM:
        return None
    spec = manifest.get("spec", {})
    return spec.get("jobTemplate", {}).get("spec", spec).get("template", {}).get("spec")


def templates(manifests: list[Manifest]) -> list[Manifest]:
    """Return the templates of the pods that Spark starts: in ConfigMaps, and in SparkApplications."""
    maps = (item["data"] for item in manifests if item["kind"] == "ConfigMap")
    stored = [yaml.safe_load(text) for data in maps for name, text in data.items() if name.endswith(".yaml")]
    return stored + [
        pod for item in manifests if item["kind"] == "SparkApplication" for pod in _pods_of(item)
    ]


def _pods_of(application: Manifest) -> Iterator[Manifest]:
    """Yield the pods of driver and executors of a SparkApplication, of Apache's or of Kubeflow's operator."""
    spec = application["spec"]
    for role in ("driver", "executor"):
        template = spec[role]["template"] if role in spec else spec[f"{role}Spec"]["podTemplateSpec"]
        yield {"kind": "Pod", **template, "metadata": {"name": role, **template["metadata"]}}


def _image(application: Manifest) -> str:
    spec = application["spec"]
    return spec.get("image") or spec["sparkConf"]["spark.kubernetes.container.image"]


def faults(manifests: list[Manifest]) -> list[str]:
    """Return which house rules the objects of an overlay break."""
    broken = [fault for item in manifests for fault in _of_pod(item, is_template=False)]
    broken += [fault for item in templates(manifests) for fault in _of_pod(item, is_template=True)]
    applications = [item for item in manifests if item["kind"] == "SparkApplication"]
    broken += [
        f"{named(i)}: its image is not pinned" for i in applications if not PINNED.fullmatch(_image(i))
    ]
    if not any(map(_denies_all, manifests)):
        broken.append("no NetworkPolicy denies all traffic by default")
    if any(item["kind"] == "Secret" for item in manifests):
        broken.append("secrets do not belong into manifests")
    levels = [
        item["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce")
        for item in manifests
        if item["kind"] == "Namespace"
    ]
    if levels != ["restricted"]:
        broken.append("the namespace does not enforce PodSecurity restricted")
    return broken


def _denies_all(item: Manifest) -> bool:
    return item["kind"] == "NetworkPolicy" and item["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }


def _of_pod(item: Manifest, *, is_template: bool) -> Iterator[str]:
    pod = pod_of(item)
    if pod is None:
        return
    name, security = named(item), pod.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield f"{name} may run as root"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield f"{name} has no seccomp profile"
    if pod.get("enableServiceLinks") is not False:
        yield f"{name} gets variables named FRAUD_... of services"
    if "automountServiceAccountToken" not in pod:
        yield f"{name} does not say whether it calls the API server"
    if any(pod.get(host) for host in ("hostNetwork", "hostPID", "hostIPC")):
        yield f"{name} is in a namespace of the node"
    for volume in pod.get("volumes", []):
        if "hostPath" in volume:
            yield f"{name} mounts a path of the node"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"{name}: {volume['name']} may fill the node's disk"
        if "secret" in volume and volume["secret"].get("defaultMode", 0o644) & 0o007:
            yield f"{name}: everyone in the pod may read {volume['name']}"
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        for fault in _of_container(container, is_template=is_template):
            yield f"{name}, container {container['name']}: {fault}"


def _of_container(container: Manifest, *, is_template: bool) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if security.get("readOnlyRootFilesystem") is not True:
        yield "may write into its root file system"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield "has capabilities"
    if not is_template:  # Spark sets image and resources
        resources = container.get("resources", {})
        for kind in ("requests", "limits"):
            if {*resources.get(kind, {})} != {"cpu", "memory"}:
                yield f"lacks {kind} of cpu and memory"
        if resources.get("requests", {}).get("memory") != resources.get("limits", {}).get("memory"):
            yield "may get less memory than its limit"
        if not PINNED.fullmatch(container.get("image", "")):
            yield "its image is not pinned by a digest"
    variables = container.get("env", [])
    if any("secretKeyRef" in entry.get("valueFrom", {}) for entry in variables) or any(
        "secretRef" in entry for entry in container.get("envFrom", [])
    ):
        yield "gets a secret as a variable, not as a file"
    refuse_unknown(entry["name"] for entry in variables)
    for entry in variables:
        if entry["name"] in ("FRAUD_SPARK", "FRAUD_KAFKA"):
            json.loads(entry["value"])
    probe = json.dumps([container.get("livenessProbe", {}), container.get("startupProbe", {})])
    if "readyz" in probe:
        yield "is restarted when Kafka does not answer"
