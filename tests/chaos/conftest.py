"""An installation of the job for each module of tests, on the session's stack."""

from collections.abc import Callable, Iterator

import pytest

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation, world
from loadtests.faults.relay import Relay
from loadtests.simulator import profiles
from streaming_job.contracts.topics import Topics


@pytest.fixture(scope="module")
def installed(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Topics, settings and a champion; the job is not running yet."""
    installation = Installation(stack, topic_names(), tmp_path_factory.mktemp("installed"))
    installation.roll_out()
    return installation


@pytest.fixture(scope="module")
def relay(installed: Installation) -> Iterator[Relay]:
    """A running job, with the cards' profiles loaded; `restart` replaces it; the last job is killed."""
    profiles.load(installed.stack.postgres_dsn, world())
    result = Relay(installed)
    try:
        yield result
    finally:
        result.job.kill()
