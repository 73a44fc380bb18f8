"""Which settings of an existing topic are reported, and with which remedies."""

import pytest

from feature_store.catalogue import DAY_MS
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.topic_comparison import ALTER, Actual, at_start, of_settings, of_sizes
from streaming_job.settings import Arrival

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
    lines = [str(line) for line in of_settings(TOPICS.transactions, {**wanted, key: found}, wanted)]
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
    assert line.is_breaking
    assert line.text.startswith("p has min.compaction.lag.ms=0, the job wants at least 604800000")


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
    assert differences[0].text == "t has 12 partitions, not 6: say so"
    assert differences[1].text.startswith("t has 1 replicas, not 3: ")


@pytest.mark.parametrize("replay", [False, True])
def test_each_topic_has_a_retention_on_purpose(replay: bool) -> None:
    """The brokers' default, 7 days, would delete labels, alerts and archives without a word."""
    for name, config in TOPICS.configs(replay=replay).items():
        assert int(config["retention.ms"]) == -1 or int(config["retention.ms"]) >= 30 * DAY_MS, name


def starts(
    name: str, arrival: Arrival, *, of_replay: bool = False, partitions: int = 1, **changes: str
) -> list[bool]:
    """Whether each difference that a start finds breaks a guarantee; changes: with underscores for points."""
    config: dict[str, str | None] = dict(TOPICS.configs(replay=of_replay, any_size=True)[name])
    config |= {key.replace("_", "."): value for key, value in changes.items()}
    return [line.is_breaking for line in at_start(TOPICS, name, Actual(config, partitions, 1), arrival)]


@pytest.mark.parametrize("name", sorted(TOPICS.configs()))
def test_topics_as_they_are_created_are_accepted_at_a_start(name: str) -> None:
    assert starts(name, Arrival.LOG_APPEND) == []
    assert starts(name, Arrival.CREATE) == []
    assert starts(name, Arrival.CREATE, of_replay=True) == []


@pytest.mark.parametrize("name", sorted(TOPICS.inputs))
def test_arrivals_of_producers_need_the_setting_for_them(name: str) -> None:
    assert True in starts(name, Arrival.LOG_APPEND, of_replay=True)
    assert starts(name, Arrival.LOG_APPEND, message_timestamp_type="CreateTime") == [True]


@pytest.mark.parametrize(
    ("name", "changes", "found"),
    [
        (TOPICS.transactions, {"cleanup_policy": "compact"}, [True]),
        (TOPICS.model_rollouts, {"cleanup_policy": "compact"}, [True]),
        (TOPICS.fraud_alerts, {"cleanup_policy": "compact"}, [True]),
        (TOPICS.profiles, {"cleanup_policy": "delete"}, [True]),
        (TOPICS.profiles, {"min_compaction_lag_ms": "0"}, [True]),
        (TOPICS.transactions, {"retention_ms": str(7 * DAY_MS)}, [False]),
        (TOPICS.fraud_alerts, {"retention_ms": str(7 * DAY_MS)}, [False]),
        (TOPICS.chargebacks, {"retention_ms": str(7 * DAY_MS)}, [False]),
        (TOPICS.transactions, {"retention_bytes": "1000"}, [False]),
        (TOPICS.transactions, {"max_message_bytes": "1000"}, [False]),
    ],
)
def test_what_breaks_a_guarantee_and_what_is_unwise(
    name: str, changes: dict[str, str], found: list[bool]
) -> None:
    assert starts(name, Arrival.LOG_APPEND, **changes) == found


def test_an_archive_is_not_compacted() -> None:
    """Its versions of a profile are older than any compaction lag."""
    assert starts(TOPICS.profiles, Arrival.CREATE, of_replay=True, cleanup_policy="compact") == [True]


@pytest.mark.parametrize(
    ("name", "found"),
    [(TOPICS.merchant_facts, [True]), (TOPICS.model_rollouts, [True]), (TOPICS.profiles, [])],
)
def test_topics_whose_order_counts_have_one_partition(name: str, found: list[bool]) -> None:
    assert starts(name, Arrival.LOG_APPEND, partitions=2) == found
