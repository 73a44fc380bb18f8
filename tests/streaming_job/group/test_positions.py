"""Checks that a group's state (P), its output (Q) and the log fit together."""

import pytest

from feature_store.errors import FraudError
from streaming_job.group.positions import require_fit, require_output
from streaming_job.log.errors import LogError
from streaming_job.log.records import Offsets
from streaming_job.runtime.checkpoint_errors import CheckpointError

pytestmark = pytest.mark.unit

T0, T1, PROFILES = ("transactions", 0), ("transactions", 1), ("profiles", 0)
FIRST, END = {T0: 10, T1: 0, PROFILES: 0}, {T0: 100, T1: 50, PROFILES: 30}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({T0: 20, T1: 5, PROFILES: 30}, {T0: 60, T1: 5}),  # P before Q: to be decided again, in silence
        ({T0: 20, T1: 5, PROFILES: 30}, {T0: 20, T1: 5}),
        ({T0: 20, T1: 5, PROFILES: 30}, {}),  # without any output yet
        ({T0: 10, T1: 0, PROFILES: 0}, {}),  # all of the log is to be decided
        ({T0: 100, T1: 50, PROFILES: 30}, {T0: 100, T1: 50}),  # nothing is to be decided
    ],
)
def test_a_state_behind_or_at_the_output_is_accepted(state: Offsets, said: Offsets) -> None:
    require_fit(state, said, FIRST, END)


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({T1: 6}, CheckpointError, "transactions-1 up to 6, output and progress reach 5.*take over"),
        ({T0: 9}, LogError, "transactions-0 has to be read from offset 9, but begins at 10.*take over"),
        ({PROFILES: 31}, LogError, "profiles-0 was read up to offset 31, but ends at 30.*another job id"),
        ({("profiles", 1): 0}, LogError, "profiles-1 is gone.*another job id"),
    ],
)
def test_a_mismatch_is_refused_with_its_partition_and_a_remedy(
    changed: Offsets, kind: type[FraudError], words: str
) -> None:
    state = {T0: 20, T1: 5, PROFILES: 3, **changed}
    with pytest.raises(kind, match=words):
        require_fit(state, {T0: 60, T1: 5}, FIRST, END)


def test_a_log_that_ends_before_the_output_is_refused() -> None:
    """P is before the end of the log, Q after it: new records up to Q would be decided without output."""
    with pytest.raises(LogError, match="transactions-0 was read up to offset 60, but ends at 40"):
        require_fit({T0: 20}, {T0: 60}, FIRST, {T0: 40})


def test_topics_without_the_last_output_are_refused() -> None:
    """Committed offsets and progress are lost: the output since the checkpoint is unknown."""
    with pytest.raises(CheckpointError, match=r"written 7 Kafka transactions.* show 0.*another job id"):
        require_output(7, 0)
    require_output(7, 7)
    require_output(7, 9)


def test_topics_without_the_end_of_the_last_output_are_refused() -> None:
    """Without Q, all output from P on would be written again."""
    words = r"written 9 Kafka .* in transactions-0, transactions-1 after the last one; .*another job id"
    with pytest.raises(CheckpointError, match=words):
        require_output(7, 9, {T1, T0})
    require_output(9, 9, {T1, T0})  # the state is as new as the last output
