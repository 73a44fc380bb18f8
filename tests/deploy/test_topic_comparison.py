"""Which settings of an existing topic are reported, and with which remedies."""

import pytest

from deploy.local.topic_comparison import ALTER, of_settings, of_sizes
from feature_store.catalogue import DAY_MS
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.unit
TOPICS = Topics()


@pytest.mark.parametrize(
    ("key", "found", "told"),
    [
        ("retention.ms", str(39 * DAY_MS), "at least 3456000000"),
        ("retention.ms", str(41 * DAY_MS), None),
        ("retention.ms", "-1", None),
        ("retention.bytes", str(1 << 40), "-1"),
        ("min.insync.replicas", "1", "at least 2"),
        ("min.insync.replicas", "3", None),
        ("max.message.bytes", "1048588", "at least 2097152"),
        ("cleanup.policy", "compact", "delete"),
        ("message.timestamp.type", None, "LogAppendTime"),
    ],
)
def test_settings_that_the_topic_of_transactions_lacks_are_reported(
    key: str, found: str | None, told: str | None
) -> None:
    wanted = TOPICS.configs(replicas=3, any_size=True)[TOPICS.transactions]
    lines = of_settings(TOPICS.transactions, {**wanted, key: found}, wanted)
    if told is None:
        assert lines == []
    else:
        value = told.rpartition(" ")[2]
        assert lines == [
            f"transactions has {key}={found}, the job wants {told}: "
            f"{ALTER} transactions --add-config {key}={value}"
        ]


def test_versions_of_profiles_must_not_be_compacted_away_at_once() -> None:
    wanted = TOPICS.configs()[TOPICS.profiles]
    (line,) = of_settings("p", {**wanted, "min.compaction.lag.ms": "0"}, wanted)
    assert line.startswith("p has min.compaction.lag.ms=0, the job wants at least 604800000")


def test_no_topic_that_is_read_again_is_cut_by_its_size() -> None:
    """Dead letters and alerts may be cut: the job reads neither.

    A size limit does not cut `dead_letter_replays`, which is compacted.
    """
    kept = {
        name
        for name, config in TOPICS.configs(any_size=True).items()
        if config.get("retention.bytes") == "-1"
    }
    assert kept == {
        TOPICS.transactions, TOPICS.profiles, TOPICS.labels, TOPICS.chargebacks, TOPICS.merchant_facts,
        TOPICS.model_rollouts, TOPICS.job_progress, TOPICS.audit_log,
    }  # fmt: skip
    assert not any("retention.bytes" in config for config in TOPICS.configs().values())


@pytest.mark.parametrize(("days", "is_told"), [(1, False), (40, False), (41, True)])
def test_dead_letters_must_not_be_kept_longer_than_their_records(days: int, is_told: bool) -> None:
    wanted = TOPICS.configs()[TOPICS.dead_letters]
    result = {**wanted, "retention.ms": str(days * DAY_MS)}
    lines = of_settings("d", result, wanted, at_most=["retention.ms"])
    assert bool(lines) == is_told
    assert bool(of_settings("d", {**wanted, "retention.ms": "-1"}, wanted, at_most=["retention.ms"]))


def test_partitions_and_replicas_are_compared() -> None:
    assert of_sizes("t", (12, 3), (12, 3)) == of_sizes("t", (7, 4), (None, 3)) == []
    differences = of_sizes("t", (12, 1), (6, 3), "say so")
    assert differences[0] == "t has 12 partitions, not 6: say so"
    assert differences[1].startswith("t has 1 replicas, not 3: ")
