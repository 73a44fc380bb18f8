"""The job in the cluster, deployed as docs/deployment.md says: from an overlay over one of the project's."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from deploy.local.child import Child
from feature_store import spark_surroundings
from harness import manifests
from harness.kubernetes import ROOT
from harness.kubernetes.cluster import Cluster, ClusterError, Object
from harness.kubernetes.surroundings import ENDPOINTS, NAMESPACE, Surroundings
from harness.manifests import HOME
from harness.under_load import UnderLoad
from loadtests.faults.installation import Installation
from loadtests.gamedays.sight import Samples, samples_of
from streaming_job.contracts.topics import Topics

SETTINGS = {"FRAUD_WAIT_FOR_SNAPSHOT_S": "0"}
"""There are no profiles."""
SHARE = "300m"
"""Requested of a processor by each container: the node has two processors, and the manifests ask for more."""


@dataclass(frozen=True)
class Pod:
    """A pod of the job as the one that decides; it stands for the job's process."""

    cluster: Cluster
    name: str

    @property
    def runs(self) -> bool:
        """Whether it counts as running: it is started again when it has ended."""
        return True

    @property
    def log(self) -> str:
        """The log of its container."""
        return self.cluster.kubectl("--namespace", NAMESPACE, "logs", self.name, "--tail", "200")


@dataclass(kw_only=True)
class Deployed(UnderLoad):
    """A deployed overlay, whose job decides."""

    cluster: Cluster
    images: dict[str, str]
    overlay: str
    directory: Path
    further: Object = field(default_factory=dict)
    """Fields of the kustomization beside images and settings."""
    _versions: int = 0

    def apply(self, images: Mapping[str, str] = {}) -> None:
        """Apply the overlay, with other images than the own if given."""
        patches = [_share("Deployment", "sidecar"), _share("CronJob", "topics")]
        pinned = {**self.images, **images}
        self._apply(HOME / "overlays" / self.overlay, "settings", SETTINGS, patches, pinned, self.further)

    def apply_successor(self, **settings: str) -> Pod:
        """Start a second job that takes over from the deployed one; return its pod."""
        patches = [_share("StatefulSet", "job-next")]
        self._apply(HOME / "successor", "successor", settings, patches, self.images, {})
        return Pod(self.cluster, "job-next-0")

    def apply_beside(self, name: str) -> str:
        """Start what runs beside a job, by its directory's name; return the name of its pod."""
        self._apply(HOME / name, "", {}, [_share("StatefulSet", name)], self.images, {})
        return f"{name}-0"

    def metrics(self, pod: str, port: int) -> Samples:
        """Return the metrics of a pod; none if it does not answer."""
        page = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{port}/proxy/metrics"
        with suppress(ClusterError):
            return samples_of(self.cluster.kubectl("get", "--raw", page))
        return {}

    def _apply(
        self, base: Path, config: str, settings: Mapping[str, str], patches: list[Object],
        images: Mapping[str, str], further: Object,
    ) -> None:  # fmt: skip
        """Apply an overlay over a directory of the project.

        Args:
            config: the ConfigMap that gets the settings; empty: the directory has none.
            further: see `Deployed`.
        """
        self._versions += 1
        directory = self.directory / f"{base.name}-{self._versions}"
        directory.mkdir(parents=True)
        kustomization: Object = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": NAMESPACE,
            "resources": [os.path.relpath(base, directory)],
            "images": [
                {"name": f"registry.bank.example/{name}", "newName": image.partition("@")[0],
                 "digest": image.partition("@")[2]}
                for name, image in images.items()
            ],
            "configMapGenerator": [
                {"name": config, "behavior": "merge", "options": {"disableNameSuffixHash": True},
                 "literals": [f"{name}={value}" for name, value in settings.items()]}
            ] if config else [],
            "patches": patches,
        }  # fmt: skip
        for name, value in further.items():
            kustomization[name] = [*kustomization.get(name, []), *value]
        (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        self.cluster.kubectl("apply", "--kustomize", str(directory))

    def decides_and_is_ready(self) -> None:
        """Wait until the job has decided transactions, and the sidecar says that it keeps up."""
        begun = time.monotonic()
        self.installed.send(1_000)
        self.installed.caught_up(self.job)
        print(f"first decisions after {time.monotonic() - begun:.0f} s", file=sys.stderr)
        self.until_rolled_out("deployment/sidecar")

    def pods(self, selector: str) -> list[Object]:
        """Return the pods with certain labels."""
        return self.cluster.get("pods", "--selector", selector)["items"]

    def submit(self, driver: str) -> Pod:
        """Start a driver with spark-submit, as docs/deployment.md says; return its pod."""
        home = spark_surroundings.require_own()
        image = self.images["card-fraud-job"]
        changes = {
            "spark.kubernetes.driver.pod.name": driver,
            "spark.kubernetes.container.image": image,
            "spark.kubernetes.driver.request.cores": SHARE,
            "spark.kubernetes.executor.request.cores": SHARE,
        }
        command = [str(home / "bin" / "spark-submit"), "--master", f"k8s://{self.cluster.server}"]
        command += ["--deploy-mode", "cluster"]
        command += ["--properties-file", str(HOME / "overlays" / "spark-submit" / "job.properties")]
        command += [word for name, value in changes.items() for word in ("--conf", f"{name}={value}")]
        log = self.directory / f"{driver}.log"
        variables = {"KUBECONFIG": str(self.cluster.kubeconfig), "SPARK_HOME": str(home)}
        program = "local:///opt/card-fraud/fraud-job.py"
        with Child("spark-submit", [*command, program], log, variables, cwd=ROOT) as submission:
            assert submission.exit_code() == 0, submission.log
        return Pod(self.cluster, driver)

    def delete(self, *pods: str, grace_s: int | None = None) -> None:
        """Delete pods, and wait until they are gone.

        Args:
            grace_s: time to end; None: what the pod says.
        """
        grace = [] if grace_s is None else ["--grace-period", str(grace_s)]
        self.cluster.kubectl("--namespace", NAMESPACE, "delete", "pod", *pods, *grace)

    def until_rolled_out(self, workload: str, limit_s: int = 600) -> None:
        """Wait until the pods of a workload have its newest template, and are ready."""
        self.cluster.kubectl(
            "--namespace", NAMESPACE, "rollout", "status", workload, "--timeout", f"{limit_s}s"
        )


def _share(kind: str, name: str) -> Object:
    template = "/spec/jobTemplate/spec/template" if kind == "CronJob" else "/spec/template"
    return _replaced(kind, name, f"{template}/spec/containers/0/resources/requests/cpu", SHARE)


def _replaced(kind: str, name: str, path: str, value: str) -> Object:
    change = json.dumps([{"op": "replace", "path": path, "value": value}])
    return {"target": {"kind": kind, "name": name}, "patch": change}


def of_local() -> Object:
    """Fields of an overlay over `local`."""
    return {"patches": [_share("StatefulSet", "job")]}


def of_executors() -> Object:
    """Fields of an overlay over `executors`."""
    objects = manifests.built(HOME / "overlays" / "executors")
    (job,) = [item for item in objects if item["kind"] == "StatefulSet"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    number, spark = next(
        (number, entry["value"])
        for number, entry in enumerate(container["env"])
        if entry["name"] == "FRAUD_SPARK"
    )
    asked = '"spark.kubernetes.executor.request.cores": "1"'
    assert asked in spark
    changed = spark.replace(asked, asked.replace('"1"', f'"{SHARE}"'))
    path = f"/spec/template/spec/containers/0/env/{number}/value"
    return {"patches": [_share("StatefulSet", "job"), _replaced("StatefulSet", "job", path, changed)]}


@contextmanager
def deploy(
    cluster: Cluster, images: dict[str, str], overlay: str, claims: Mapping[str, str], further: Object
) -> Iterator[Deployed]:
    """Deploy an overlay among surroundings of its own, until a first transaction is decided if it has a job.

    Args:
        images: name of each image of the project -> its name in the cluster.
        claims: claims of volumes -> their access modes.
        further: see `Deployed`.
    """
    surroundings = Surroundings(cluster, images["card-fraud-job"])
    try:
        for claim, mode in claims.items():
            surroundings.volume(claim, mode)
        directory = cluster.directory / f"overlays-{overlay}"
        deployed = Deployed(
            cluster=cluster, images=images, overlay=overlay, directory=directory, further=further,
            installed=None,
        )  # fmt: skip
        deployed.apply()
        cluster.kubectl("--namespace", NAMESPACE, "create", "job", "topics", "--from", "cronjob/topics")
        cluster.kubectl(
            "--namespace", NAMESPACE, "wait", "job/topics", "--for=condition=Complete", "--timeout", "300s"
        )
        deployed.installed = Installation(
            ENDPOINTS, Topics(), directory / "job", job_id="card-fraud", partitioner="murmur2", key_groups=2
        )
        surroundings.grant(deployed.installed.settings)
        deployed.installed.roll_out()
        # a pod that has been restarted some times waits for minutes before the next time
        deployed.delete("--selector", "app.kubernetes.io/name=card-fraud-job")
        yield deployed
    finally:
        surroundings.close()
