"""The images of production: job and sidecar in containers, killed and stopped, then audited."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness import containers
from harness.containers import STATE, Container, MlflowServer
from harness.tools import needs
from thoroughness import only_thorough

from deploy.local.ports import free_port
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from streaming_job.contracts.topics import Topics

pytestmark = [
    pytest.mark.integration,
    needs("buildah", "mmdebstrap", "podman", "runc"),
    only_thorough,
    pytest.mark.timeout(3_600),
]
GRACE_S = 60
"""terminationGracePeriodSeconds of the job's pod."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Names of the images, by what they are."""
    containers.build(tmp_path_factory.mktemp("images"))
    return {image: f"localhost/card-fraud-{image}" for image in ("job", "sidecar", "tools")}


@pytest.fixture
def installed(stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path) -> Iterator[Installation]:
    """Topics and a champion in a registry behind HTTP; the job's directories are those of its container."""
    with MlflowServer(tmp_path / "mlflow") as mlflow:
        installation = Installation(
            replace(stack, mlflow_tracking_uri=mlflow.uri),
            topic_names(),
            tmp_path,
            checkpoint=f"{STATE}/checkpoint",
            work_dir=f"{STATE}/work",
        )
        installation.roll_out()
        yield installation


def test_an_image_runs_as_a_user_without_rights_and_names_what_it_has(images: dict[str, str]) -> None:
    for name, image in images.items():
        described = containers.inspect(image)
        assert described["Config"]["User"] == "10001:10001"
        assert described["Config"]["Entrypoint"][0] == "tini"
        assert described["Config"]["Labels"]["org.opencontainers.image.title"] == f"card-fraud {name}"
        assert described["Size"] < {"job": 1.6e9, "sidecar": 1.1e9, "tools": 1.3e9}[name]


def test_a_job_in_a_container_is_stopped_and_killed_beside_a_sidecar(
    images: dict[str, str], installed: Installation, wait_for: Callable[..., object]
) -> None:
    number = 0

    def job() -> Container:
        nonlocal number
        number += 1
        name = f"{installed.settings.job_id}-{number}"
        return Container(
            images["job"], [], installed.directory, installed.environment(epoch_s=2.0), name=name
        )

    port = free_port()
    environment = {
        name: value
        for name, value in installed.environment().items()
        if name in ("FRAUD_JOB_ID", "FRAUD_BOOTSTRAP_SERVERS", "FRAUD_MLFLOW_TRACKING_URI")
        or name.startswith("FRAUD_TOPICS__")
    }
    sidecar = Container(
        images["sidecar"],
        ["fraud", "serve", "--port", str(port)],
        installed.directory / "sidecar",
        environment,
        name=f"{installed.settings.job_id}-sidecar",
        memory="768m",
    )
    with sidecar:
        wait_for(lambda: _status(port, "livez") == 200, deadline_s=120, what="a sidecar that lives")
        assert _status(port, "readyz") == 503
        begun = time.monotonic()
        with job() as first:
            installed.send(2_000)
            installed.caught_up(first)
            print(f"container to first decisions: {time.monotonic() - begun:.1f} s")
            wait_for(lambda: _status(port, "readyz") == 200, deadline_s=120, what="a sidecar that is ready")
            begun = time.monotonic()
            assert first.terminate(GRACE_S) == 0, first.log
            print(f"stopped in {time.monotonic() - begun:.1f} s")
            assert "is not saved" not in first.log
        installed.send(1_000)
        with job() as second:
            installed.caught_up(second)
            installed.send(1_000)
            second.kill()
        installed.send(1_000)
        with job() as third:
            installed.caught_up(third)
            installed.audit()
            assert third.terminate(GRACE_S) == 0, third.log
        assert sidecar.terminate(15) == 0, sidecar.log


def test_the_job_starts_without_compiling_anything(images: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from numba.core import event\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    from streaming_job.runtime.workers.preload import load_kernels\n"
        "    load_kernels()\n"
        "print('COMPILED', len(recorder.buffer))"
    )
    with Container(
        images["job"], ["python", "-c", code], tmp_path, {}, name=f"kernels-{tmp_path.name}"
    ) as run:
        assert run.exit_code(300) == 0, run.log
        assert "COMPILED 0\n" in run.log


def test_the_sbom_names_each_package_of_the_image(images: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import json; from importlib.metadata import distributions\n"
        "bom = json.load(open('/usr/share/sbom/python.cdx.json'))\n"
        "named = {part['name'] + ' ' + part['version'] for part in bom['components']}\n"
        "found = [(d.name.lower().replace('_', '-').replace('.', '-'), d.version) for d in distributions()]\n"
        "names = map(' '.join, found)\n"
        "print('DIFFERENT', *sorted({*names} ^ named), sep=',')"
    )
    for image, name in images.items():
        called = f"sbom-{image}-{tmp_path.name}"
        with Container(name, ["python", "-c", code], tmp_path / image, {}, name=called) as run:
            assert run.exit_code(300) == 0, run.log
            assert "DIFFERENT,card-fraud 0.1.0\n" in run.log


def _status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
