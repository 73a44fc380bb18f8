"""An installation of the job for each module of tests, and writers for each test, on the session's stack."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.replayed import Replayed, replays
from harness.writer_bench import At, WriterBench

from deploy.local.stack import Endpoints
from loadtests.faults.acls import grant
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import JobProcess
from streaming_job.contracts.topic import Component
from streaming_job.contracts.topics import Topics
from streaming_job.permissions import needed
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.transaction import writer as writer_module


@pytest.fixture(scope="module")
def installed(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Topics, settings and a champion; a job started on them logs in and has only its permissions."""
    assert stack.guarded is not None
    servers, client = stack.guarded
    directory = tmp_path_factory.mktemp("installed")
    installation = Installation(stack, topic_names(), directory, bootstrap_servers=servers, kafka=client)
    grant(stack.bootstrap_servers, Component.JOB, needed(Component.JOB, installation.settings))
    installation.roll_out()
    return installation


@pytest.fixture(scope="module")
def warm_job(installed: Installation) -> Iterator[JobProcess]:
    """A job that has decided transactions, so that its code is compiled."""
    with installed.start() as running:
        installed.send(2_000)
        installed.caught_up(running)
        yield running


@pytest.fixture(scope="module")
def replayed(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replayed]:
    """A live job with a rollout and profiles, and the command line of its replays."""
    with replays(stack, topic_names(), tmp_path_factory.mktemp("replayed")) as result:
        yield result


@pytest.fixture
def bench(stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path) -> Iterator[WriterBench]:
    """Writers of key groups without the job, on unique topics."""
    writers = WriterBench(stack, topic_names(), tmp_path)
    yield writers
    writers.close()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[At]:
    """Function that runs an action once, when a writer reaches a step."""

    def happen(step: Failpoint, event: Callable[[], object]) -> None:
        waiting = [event]

        def reach(reached: Failpoint) -> None:
            if reached is step and waiting:
                waiting.pop()()

        monkeypatch.setattr(writer_module, "reach", reach)

    return happen
