"""The project's code in locust; each test has its own process: locust replaces threads and sockets."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.unit
READER = """
import json
from argparse import Namespace
from locust.env import Environment
from loadtests.locust_run.users import SidecarUser
environment = Environment(user_classes=[SidecarUser])
environment.parsed_options = Namespace(tx_sidecar="https://job:8000")
user = SidecarUser(environment)
print(json.dumps([user.host, user.client.headers.get("Authorization")]))
"""
STATISTICS = """
import json
from loadtests.locust_run import locust_stats
locust_stats.keep_digits()
from locust.env import Environment
environment = Environment()
environment.create_local_runner()
locust_stats.feed(environment.events, [(147.26, 10), (3.14159, 10), (3432.4, 10)])
found = environment.stats.get(locust_stats.NAME, locust_stats.KIND)
print(json.dumps([sorted(found.response_times), found.get_response_time_percentile(0.5), found.num_requests]))
"""


def printed(code: str, **variables: str) -> Any:
    """Last line that a program prints, parsed as JSON."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize(("token", "header"), [("", None), ("fraud_secret", "Bearer fraud_secret")])
def test_a_reader_of_the_sidecar_sends_the_token_of_its_environment(token: str, header: str | None) -> None:
    assert printed(READER, FRAUD_SIDECAR_TOKEN=token) == ["https://job:8000", header]


def test_locusts_statistics_keep_the_digits_of_their_values() -> None:
    assert printed(STATISTICS) == [[3.1, 147.3, 3432], 147.3, 3]
