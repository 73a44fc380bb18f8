"""An audit refuses a log that was decided with other settings than its own."""

import json
from typing import Any

import pytest
from audited_log import SETTINGS, MemoryLog, audit, job_output
from followed_log import ContinuousAudit
from harness.log_world import MINUTE
from oracle_world import World, load

from loadtests.audit.memory import Memory
from loadtests.audit.settings_audit import OtherSettingsError

pytestmark = pytest.mark.unit


def log(**changes: Any) -> MemoryLog:
    """The log of a job that decided with the audit's settings, except for some."""
    world = World(threshold=0.5)
    for number in range(5):
        world.tx(number * MINUTE, 10.0)
    output = job_output(world)
    (record,) = output.topics["job-progress"]
    row = {**json.loads(record.value or b""), "settings": {**SETTINGS.decisive, **changes}}
    output.topics["job-progress"] = [record._replace(value=json.dumps(row).encode())]
    return output


def test_the_same_settings_are_audited() -> None:
    assert audit(log()).is_clean
    # the audit reads arrivals from the log, whoever set them
    assert audit(log(arrival="create")).is_clean


@pytest.mark.parametrize(
    "changes", [{"allowed_lateness_ms": 5}, {"allowed_skew_ms": 5}, {"refuse_card_numbers": False}]
)
def test_other_settings_are_named(changes: dict[str, Any]) -> None:
    ((name, value),) = changes.items()
    words = f"FRAUD_{name.upper()}={value}"
    with pytest.raises(OtherSettingsError, match=words):
        audit(log(**changes))
    follower = ContinuousAudit(log(**changes), SETTINGS, load, Memory.empty(SETTINGS, 1.0, 0.0))
    with pytest.raises(OtherSettingsError, match=words):
        follower.step()
