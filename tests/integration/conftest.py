"""An installation of the job for each module of tests, on the session's stack."""

from collections.abc import Callable

import pytest

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from streaming_job.contracts.topics import Topics


@pytest.fixture(scope="module")
def installed(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Topics, settings and a model in charge; the job does not run yet."""
    made = Installation(stack, topic_names(), tmp_path_factory.mktemp("installed"))
    made.roll_out()
    return made
