"""Schemathesis against a served sidecar with brokers and a registry behind it: no request ends in a 500."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from harness.tools import find, needs
from page_world import World
from prometheus_client.parser import text_string_to_metric_families
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from streaming_job.contracts.topics import Topics

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1_800),
    only_thorough,
    needs("schemathesis"),
]
EXAMPLES = 200
"""Largest number of examples of each operation."""


@pytest.fixture
def world(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path, wait_for: Callable[..., object]
) -> Iterator[World]:
    topics = topic_names()
    topics = topics.model_copy(update={"profiles": f"{topics.transactions}-profiles"})
    registry = {"mlflow_tracking_uri": stack.mlflow_tracking_uri, "rate_per_s": 0}
    result = World(stack.bootstrap_servers, topics, f"job-{topics.transactions}", tmp_path, **registry)
    result.start()
    wait_for(lambda: result.is_serving, what="the sidecar")
    yield result
    result.stop()


def test_schemathesis_finds_no_500(world: World, tmp_path: Path) -> None:
    header = f"Authorization: {world.bearer('admin')['Authorization']}"
    command = [
        str(find("schemathesis")),
        "run",
        f"{world.url}openapi.json",
        "--header",
        header,
        "--seed",
        "21",
    ]
    command += ["--max-examples", str(EXAMPLES), "--checks", "not_a_server_error", "--continue-on-failure"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1_700)
    # schemathesis also fails on 503, which the sidecar may answer, so its exit code is ignored: the sidecar's
    # counters show whether there was a 500
    answered: Counter[tuple[str, str]] = Counter()
    page = httpx.get(f"{world.url}metrics", headers=world.bearer("viewer")).text
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "fraud_sidecar_http_requests_total":
                answered[sample.labels["route"], sample.labels["status"]] += int(sample.value)
    described = httpx.get(f"{world.url}openapi.json").json()["paths"]
    assert set(described) <= {route for route, _ in answered}, ended.stdout[-3_000:] + ended.stderr[-3_000:]
    assert sum(answered.values()) > EXAMPLES * len(described) / 4
    assert {route for route, status in answered if status == "500"} == set(), ended.stdout[-6_000:]
