"""Which rollout decides a transaction."""

import numpy as np
import orjson
import pytest
from harness.job_world import START, TOPICS, model_ref

from models.policy import Policy
from models.rollouts import Rollout
from streaming_job.contracts import Reason
from streaming_job.decide.rollout_history import NoRolloutError, RolloutHistory, RolloutRecord

pytestmark = pytest.mark.unit


def record(offset: int, arrival: int, name: str = "") -> RolloutRecord:
    rollout = Rollout(name or f"r{offset}", model_ref(), Policy(0.5, 10), "test", START)
    return RolloutRecord(arrival, offset, rollout.to_json(), b"r")


def deciding(history: RolloutHistory, *arrivals: int) -> list[str]:
    known, numbers = history.in_force(np.array(arrivals))
    return [known[number].rollout_id for number in numbers]


def test_the_newest_that_had_arrived_decides() -> None:
    """rollout  r0 at 10    r1 at 20    r2 at 20
    arrival  5  10    19    20          21
    """
    history = RolloutHistory()
    assert history.fold([record(0, 10), record(1, 20), record(2, 20)], TOPICS) == []
    assert deciding(history, 5, 10, 19, 20, 21) == ["r0", "r0", "r0", "r2", "r2"]
    assert deciding(history) == []


def test_one_that_looks_older_takes_effect_with_the_one_before() -> None:
    history = RolloutHistory()
    history.fold([record(0, 0), record(1, 20), record(2, 10)], TOPICS)
    assert deciding(history, 15, 20) == ["r0", "r2"]


def test_records_count_in_the_order_of_their_offsets() -> None:
    history = RolloutHistory()
    history.fold([record(1, 10), record(0, 10)], TOPICS)
    history.fold([record(2, 10)], TOPICS)
    assert [offset for _, offset, _ in history.records] == [0, 1, 2]
    assert deciding(history, 10) == ["r2"]


def test_what_is_no_rollout_is_refused_whole_and_changes_nothing() -> None:
    history = RolloutHistory()
    good = record(1, 10)
    too_many = (good.value or b"").replace(b'"max_count_5m":10', b'"max_count_5m":1' + b"0" * 400)
    records = [
        RolloutRecord(0, 0, None, b"k"),
        good,
        RolloutRecord(20, 2, b"{"),
        RolloutRecord(20, 3, too_many),
    ]
    refused = history.fold(records, TOPICS)
    assert [(letter.offset, letter.arrival, letter.key, letter.reason) for letter in refused] == [
        (0, 0, b"k", Reason.EMPTY_VALUE),
        (2, 20, None, Reason.INVALID_VALUE),
        (3, 20, None, Reason.INVALID_VALUE),
    ]
    assert {(letter.topic, letter.partition) for letter in refused} == {(TOPICS.model_rollouts, 0)}
    assert refused[2].value == too_many
    assert deciding(history, 5, 30) == ["r1", "r1"]


def test_restored_history_is_the_same_and_goes_on() -> None:
    history = RolloutHistory()
    history.fold([record(0, 10), record(1, 20)], TOPICS)
    restored = RolloutHistory.restore(orjson.loads(orjson.dumps(history.records)))
    assert restored == history
    restored.fold([record(2, 30)], TOPICS)
    assert deciding(restored, 10, 20, 30) == ["r0", "r1", "r2"]
    assert len(history.records) == 2


def test_without_any_nothing_can_be_decided() -> None:
    for history in (RolloutHistory(), RolloutHistory.restore([])):
        with pytest.raises(NoRolloutError, match="fraud models promote"):
            deciding(history, 0)
