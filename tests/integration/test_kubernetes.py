"""A real cluster: it accepts every overlay, and runs the job while pods are deleted under load.

`make test-kubernetes` runs these tests; without it they are skipped.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import manifests
from harness.kubernetes import COMPONENTS, DIRECTORY
from harness.kubernetes.cluster import NODE, Cluster, ClusterError, Object
from harness.kubernetes.deployed import Deployed, Pod, deploy, of_executors, of_local
from harness.kubernetes.images import BUILT, NEXT, Image, image
from harness.kubernetes.surroundings import NAMESPACE, registry
from harness.manifests import HOME, OVERLAYS

from deploy.local.waiting import Patience
from loadtests.faults.job_process import PATIENCE_S
from streaming_job.takeover.handover import TOOK_OVER, newest_records

pytestmark = [
    pytest.mark.integration,
    pytest.mark.without_stack,
    pytest.mark.skipif(COMPONENTS not in os.environ, reason="needs a cluster: make test-kubernetes"),
    pytest.mark.timeout(3_600),
]
RATE = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of one node."""
    directory = DIRECTORY / "cluster"
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()
    with Cluster(Path(os.environ[COMPONENTS]), _image("pause"), directory) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def images(cluster: Cluster) -> Iterator[dict[str, str]]:
    """The images of the project, in a cluster with a registry of models, by their names in the manifests."""
    with registry(cluster):
        yield {f"card-fraud-{name}": cluster.load(_image(name)) for name in BUILT}


def _image(name: str) -> Image:
    return image(name, DIRECTORY / "images")


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Cluster:
    """The cluster with the job's namespace, which has the accounts of the pods and nothing else."""
    cluster.kubectl("apply", "--filename", str(HOME / "base" / "namespace.yaml"))
    objects = manifests.built(HOME / "overlays" / "executors")
    cluster.apply(*(item for item in objects if item["kind"] == "ServiceAccount"))
    return cluster


@pytest.mark.parametrize("directory", OVERLAYS, ids=lambda path: path.name)
def test_the_api_server_accepts_an_overlay_and_its_pods(namespace: Cluster, directory: Path) -> None:
    objects = manifests.built(directory)
    known = [item for item in objects if item["kind"] not in manifests.CUSTOM]
    namespace.dry_run(*known)
    # workloads are accepted whatever their pods are: what PodSecurity refuses is a pod
    namespace.dry_run(*_pods(objects))


def test_the_namespace_refuses_pods_that_may_be_root(namespace: Cluster) -> None:
    (pod, *_) = _pods(manifests.built(HOME / "overlays" / "local"))
    pod["spec"]["securityContext"].pop("runAsNonRoot")
    with pytest.raises(ClusterError, match=r"violates PodSecurity .* runAsNonRoot != true"):
        namespace.dry_run(pod)


def _pods(objects: list[Object]) -> list[Object]:
    """The pods of an overlay: of its workloads, and those that Spark starts, which gives them their image."""
    specs = []
    for item in objects:
        if spec := manifests.pod_of(item):
            claims = [claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])]
            claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
            specs.append({**spec, "volumes": [*spec["volumes"], *claimed]})
    specs += [template["spec"] for template in manifests.templates(objects)]
    for spec in specs:
        for container in spec["containers"]:
            container.setdefault("image", "card-fraud-job")
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": NAMESPACE},
            "spec": spec,
        }
        for number, spec in enumerate(specs)
    ]


@pytest.fixture(scope="module")
def deployed(request: pytest.FixtureRequest, cluster: Cluster, images: dict[str, str]) -> Iterator[Deployed]:
    """A deployed overlay, whose job has decided some transactions; only one at a time."""
    overlay = request.param
    claims, further = DEPLOYMENTS[overlay]
    with deploy(cluster, images, overlay, claims, further()) as deployed:
        deployed.job = deployed.submit("driver-1") if overlay == "spark-submit" else Pod(cluster, "job-0")
        deployed.decides_and_is_ready()
        yield deployed


DEPLOYMENTS: dict[str, tuple[dict[str, str], Callable[[], Object]]] = {
    "local": (
        dict.fromkeys(("state-job-0", "state-audit-0", "archive-archive-0"), "ReadWriteOnce"),
        of_local,
    ),
    "executors": ({"state-job-0": "ReadWriteOnce", "checkpoint": "ReadWriteMany"}, of_executors),
    "spark-submit": ({"checkpoint": "ReadWriteMany"}, dict),
}
"""Overlay -> its claims of volumes with their access modes, and what it changes."""
local, executors, submitted = (
    pytest.mark.parametrize("deployed", [overlay], indirect=True) for overlay in DEPLOYMENTS
)


@local
@pytest.mark.parametrize("grace_s", [None, 1])
def test_the_pod_of_the_job_may_be_deleted(deployed: Deployed, grace_s: int | None) -> None:
    with deployed.load(RATE) as watch:
        deployed.delete("job-0", grace_s=grace_s)
        deployed.until_alerts(watch)
    deployed.audit()


@local
def test_the_pod_of_the_sidecar_may_be_deleted(deployed: Deployed) -> None:
    with deployed.load(RATE) as watch:
        (sidecar,) = deployed.pods("app.kubernetes.io/name=card-fraud-sidecar")
        deployed.delete(sidecar["metadata"]["name"])
        deployed.until_alerts(watch)
        deployed.until_rolled_out("deployment/sidecar")
    deployed.audit()


@local
def test_archiver_and_continuous_audit_run_beside(deployed: Deployed) -> None:
    with deployed.load(RATE):
        archive, audit = (deployed.apply_beside(name) for name in ("archive", "audit"))
        patience = Patience(4 * PATIENCE_S, 5.0)
        while not (total(deployed, audit, 9109, "checked") and total(deployed, archive, 9110, "records")):
            patience.wait(lambda: AssertionError(f"{Pod(deployed.cluster, audit).log}"))
    found = ("missing", "duplicated", "unexpected", "different")
    assert {kind: total(deployed, audit, 9109, kind) for kind in found} == dict.fromkeys(found, 0.0)
    deployed.audit()


def total(deployed: Deployed, pod: str, port: int, name: str) -> float:
    """The sum of a counter of the archiver or the continuous audit; 0 if it does not answer yet."""
    metrics = deployed.metrics(pod, port)
    return sum(sum(metrics.get(f"fraud_{each}_{name}_total", {}).values()) for each in ("audit", "archive"))


@local
def test_a_new_image_is_rolled_out(deployed: Deployed, cluster: Cluster) -> None:
    following = cluster.load(_image(NEXT))
    with deployed.load(RATE) as watch:
        deployed.apply({"card-fraud-job": following})
        deployed.until_rolled_out("statefulset/job")
        deployed.until_alerts(watch)
    (job,) = deployed.pods("app.kubernetes.io/name=card-fraud-job")
    assert job["spec"]["containers"][0]["image"] == following
    deployed.audit()


@local
def test_the_node_is_drained(deployed: Deployed, cluster: Cluster) -> None:
    with deployed.load(RATE) as watch:
        # the brokers stay: a cluster of a bank has them elsewhere
        cluster.kubectl(
            "drain", NODE, "--pod-selector", "app.kubernetes.io/part-of=card-fraud",
            "--delete-emptydir-data", "--timeout", "120s",
        )  # fmt: skip
        assert not [pod for pod in deployed.pods("") if pod["status"]["phase"] == "Running"]
        cluster.kubectl("uncordon", NODE)
        deployed.until_alerts(watch)
        deployed.until_rolled_out("deployment/sidecar")
    deployed.audit()


@local
def test_a_successor_takes_over_on_the_same_volume(deployed: Deployed, cluster: Cluster) -> None:
    before = newest_records(deployed.installed.settings)
    assert len(before) == 2
    with deployed.load(RATE) as watch:
        query = str(before[0]["query_id"])
        deployed.job = deployed.apply_successor(FRAUD_PREDECESSOR=query, FRAUD_KEY_GROUPS="1")
        deployed.until_rolled_out("statefulset/job-next")
        patience = Patience(PATIENCE_S, 1.0)
        while f"{TOOK_OVER} {query}" not in deployed.job.log:
            patience.wait(lambda: AssertionError(deployed.job.log))
        deployed.until_alerts(watch)
        cluster.kubectl("--namespace", NAMESPACE, "scale", "statefulset/job", "--replicas", "0")
    assert len(newest_records(deployed.installed.settings)) == 1
    deployed.audit()


@executors
def test_an_executor_may_be_deleted(deployed: Deployed) -> None:
    with deployed.load(RATE) as watch:
        first, _ = deployed.pods("spark-role=executor")
        deployed.delete(first["metadata"]["name"], grace_s=1)
        deployed.until_alerts(watch)
    deployed.audit()


@executors
def test_the_driver_may_be_deleted(deployed: Deployed) -> None:
    with deployed.load(RATE) as watch:
        deployed.delete("job-0")
        deployed.until_alerts(watch)
    deployed.audit()


@submitted
def test_an_executor_of_a_submitted_driver_may_be_deleted(deployed: Deployed) -> None:
    with deployed.load(RATE) as watch:
        first, _ = deployed.pods("spark-role=executor")
        deployed.delete(first["metadata"]["name"], grace_s=1)
        deployed.until_alerts(watch)
    deployed.audit()


@submitted
def test_a_submitted_driver_may_be_deleted_and_another_one_submitted(deployed: Deployed) -> None:
    with deployed.load(RATE) as watch:
        deployed.delete("driver-1")
        deployed.job = deployed.submit("driver-2")
        deployed.until_alerts(watch)
    deployed.audit()
