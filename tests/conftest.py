"""Real servers for the tests: one embedded stack per session, on free ports, in a temporary directory."""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import thoroughness  # noqa: F401  loads the profile of property tests
from harness.scheduling import Scheduling
from harness.tools import skip_without_tools

from deploy.local import stack as embedded
from deploy.local.console import to_stderr
from deploy.local.stack import Endpoints
from streaming_job.contracts.topics import Topics

WaitFor = Callable[..., object]
pytest_plugins = ["harness.ledger"]

# a test's JVM lives for some minutes at most, so the optimising compiler would not pay; verifying the byte
# code of the jars, whose checksums have been checked, would take one of the six seconds of a start
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
# OpenMP's threads wait in loops; beside other processes they would compute for nothing most of the time
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of which a program is missing, before any server is started for it."""
    skip_without_tools(item)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Distribute the files over the processes of a run with `--numprocesses`."""
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def stack_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data directory of the session's stack."""
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="session")
def stack(stack_dir: Path) -> Iterator[Endpoints]:
    """Kafka, Postgres with Debezium, and MLflow, shared by all tests: use unique names."""
    try:
        yield embedded.up(stack_dir, proxied=True, guarded=True, progress=to_stderr())
    finally:
        embedded.down(stack_dir)


@pytest.fixture(scope="session")
def topic_names() -> Callable[[], Topics]:
    """Function that creates unique topic names; all share the profiles topic of Debezium's connector."""
    numbers = itertools.count()

    def fresh() -> Topics:
        suffix = f"-{os.getpid()}-{next(numbers)}"
        return Topics().renamed(lambda name: name + suffix, but=("profiles",))

    return fresh


@pytest.fixture(scope="session")
def wait_for() -> WaitFor:
    """Function that waits for a condition and returns its first true value; fails after the deadline.

    The default deadline is six times the timeout of Kafka's requests: lost answers, or a machine that is much
    slower, delay a test and do not fail it.
    """

    def wait(
        condition: Callable[[], object], *, deadline_s: float = 180.0, what: str = "the condition"
    ) -> object:
        end = time.monotonic() + deadline_s
        while True:
            answer = condition()
            if answer:
                return answer
            assert time.monotonic() < end, f"{what} did not come true within {deadline_s:.0f} s"
            time.sleep(0.02)

    return wait
