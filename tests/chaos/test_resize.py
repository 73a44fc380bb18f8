"""Two key groups become three and two again under load; either job is killed at each step of a takeover.

predecessor   ==== decides ==================|fenced
successor       `~ state ~ silence ~ claims  |seam ~ first transaction ~ first cut
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.faults.relay import Relay
from loadtests.simulator.world import World
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import Failpoint

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), only_thorough]

LOAD = {"every_s": 0.05, "events": 110}
"""About 2,000 transactions a second; to send them takes a part of the interval."""
STEPS = {
    Failpoint.DELTA: "in the first epoch, which takes the predecessor's state",
    Failpoint.TAKEN: "while a group decides in silence",
    Failpoint.CLAIMED: "after the claims, before the seam",
    Failpoint.SEAM: "after the seam, before the groups are opened",
    Failpoint.COMMITTED: "after the first transaction",
}


class Resized:
    """Jobs that take over from one another, in directories of their own, because they pass the same steps."""

    def __init__(self, relay: Relay, directory: Path) -> None:
        """Begin with the relay's job."""
        self.relay, self._directory = relay, directory
        self._checkpoint = relay.installed.settings.checkpoint
        self._resizes = 0

    def resize(self, groups: int, step: Failpoint, kills_predecessor: bool) -> None:
        """Have a job with another number of key groups take over; kill either job when a step is reached."""
        relay, predecessor, before = self.relay, self.relay.job, self._checkpoint
        relay.until(lambda: predecessor.epochs() > 1, "saved states")
        self._resizes += 1
        directory = self._directory / f"resize-{self._resizes}"
        self._checkpoint = str(directory / "checkpoint")
        start = partial(relay.successor, before, directory, key_groups=groups)
        relay.job = start()
        relay.job.arm(step)
        hanging = relay.until(lambda: relay.job.reached(step), f"step {step}")
        if kills_predecessor:
            predecessor.kill()
            relay.job.release(hanging)
        else:
            relay.job.kill()
            relay.job = start()  # with the same settings, as a supervisor starts it
        relay.until(lambda: relay.job.epochs() > 1, "the takeover and epochs after it")
        assert kills_predecessor or predecessor.exit_code() == 3, predecessor.log


@pytest.mark.parametrize("kills_predecessor", [True, False], ids=["predecessor", "successor"])
@pytest.mark.parametrize("step", [pytest.param(step, id=text) for step, text in STEPS.items()])
def test_a_job_is_resized_and_back_although_it_or_its_successor_is_killed(
    stack: Endpoints,
    topic_names: Callable[[], Topics],
    tmp_path: Path,
    step: Failpoint,
    kills_predecessor: bool,
) -> None:
    topics = topic_names()
    broker.create(stack.bootstrap_servers, topics, partitions=4)
    # so many cards that most transactions do not alert by velocity
    cards = World.create(seed=5, cards=20_000)
    installed = Installation(stack, topics, tmp_path, cards, master="local[3]")
    installed.roll_out()
    relay = Relay(installed)
    try:
        with relay.busy(**LOAD):
            resized = Resized(relay, tmp_path)
            for groups in (3, 2):
                resized.resize(groups, step, kills_predecessor)
        audited = relay.audit()
        assert audited.records["fraud_alerts"] > 1_000
    finally:
        relay.job.kill()
