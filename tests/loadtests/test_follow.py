"""The continuing audit finds each planted fault exactly once, and none in a clean log."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from audited_log import SETTINGS, audit, changed, counts
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from followed_log import BEHIND_S, Audited, GrowingLog, world_of
from harness.log_world import DAY
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_world import load

from loadtests.audit import endless
from loadtests.audit.endless import EndlessOptions
from loadtests.audit.follow import FollowError
from loadtests.audit.memory import Memory, MemoryFileError
from loadtests.audit.sample import Sample
from loadtests.audit.settled import SettledPoints
from loadtests.audit.topic_log import TIMEOUT_S, TopicLog
from loadtests.oracle import Record
from loadtests.oracle.card import Card
from loadtests.oracle.records import Transaction
from streaming_job.log.topic_reader import STEP_S

pytestmark = pytest.mark.unit

AMOUNTS = [900, 10, 600, 700, 0, 20, 800, 650, 30, 0, 990, 610]
CLEAN = (0, 0, 0, 0)  # missing, duplicated, unexpected, different


def test_clean_log_stays_clean_step_after_step() -> None:
    log = GrowingLog(world_of(AMOUNTS), [3, 5, 12])
    audited = Audited(log)
    begun = audited.clock.now
    while not log.is_over:
        # all transactions had arrived at the start, so this is 0 until the last commit is audited
        assert audited.follower.audited_until_s == 0
        log.commit()
        assert audited.settle() == CLEAN
    assert audited.follower.checked == 10
    assert begun < audited.follower.audited_until_s == audited.clock.now


def test_an_alert_is_audited_once_it_has_settled() -> None:
    """A commit lacks one of its alerts: after 59 s that is not yet reported, after 60 s it is."""
    log = GrowingLog(world_of(AMOUNTS), [12])
    log.planned["fraud-alerts"].pop(1)
    log.commit()
    audited = Audited(log)
    assert audited.step() == CLEAN
    assert audited.step(BEHIND_S - 1) == CLEAN
    assert audited.step(1) == (1, 0, 0, 0)
    assert "transactions[0]@2: fraud-alerts: no alert" in audited.follower.findings.examples[0]
    assert audited.settle() == (1, 0, 0, 0)


def test_lost_duplicated_changed_and_foreign_alerts_are_each_found_once() -> None:
    log = GrowingLog(world_of(AMOUNTS), [6, 12])
    alerts = log.planned["fraud-alerts"]
    source = json.loads(alerts[0].value or b"")["source"]
    alerts.append(changed(alerts[0], source={**source, "offset": 1}))  # foreign
    alerts.append(alerts[3])  # duplicated
    alerts[2] = changed(alerts[2], threshold=0.4)  # changed
    del alerts[1]  # lost
    audited = Audited(log)
    log.commit()
    # missing: lost, changed; unexpected: changed, foreign; different: changed;
    # duplicated: none yet, because the second commit writes that alert
    assert audited.settle() == (2, 0, 2, 1)
    log.commit()
    assert audited.settle() == (2, 1, 2, 1)
    for _ in range(3):
        assert audited.settle() == (2, 1, 2, 1)


def test_an_alert_repeated_long_after_its_audit_is_found_at_once() -> None:
    log = GrowingLog(world_of(AMOUNTS), [12])
    log.commit()
    audited = Audited(log)
    assert audited.settle() == CLEAN
    log.write("fraud-alerts", log.planned["fraud-alerts"][0])
    assert audited.step() == (0, 1, 0, 0)
    assert audited.follower.findings.of("fraud-alerts")["duplicated"] == 1


def test_faults_of_dead_letters_are_found() -> None:
    log = GrowingLog(world_of(AMOUNTS), [12])
    _, kept = log.planned["dead-letters"]
    log.planned["dead-letters"] = [kept, kept, changed(kept, offset=5)]
    log.commit()
    assert Audited(log).settle() == (1, 1, 1, 0)


def test_each_finding_has_a_sentence() -> None:
    log = GrowingLog(world_of(AMOUNTS), [12])
    alerts = log.planned["fraud-alerts"]
    source = json.loads(alerts[0].value or b"")["source"]
    alerts += [alerts[3], changed(alerts[0], source={**source, "offset": 1})]
    alerts[2] = changed(alerts[2], threshold=0.4)
    del alerts[1]
    log.commit()
    audited, findings = Audited(log), []
    audited.follower.findings.on_finding = lambda *words: findings.append(words)
    audited.settle()
    assert [topic for topic, *_ in findings] == ["fraud-alerts"] * 4
    assert {kind: text for _, kind, text in findings} == {
        "missing": "transactions[0]@2: fraud-alerts: no alert for transaction t2",
        "duplicated": "fraud-alerts[0]@6: another alert for transactions[0]@6",
        "unexpected": "fraud-alerts[0]@7: unexpected alert for transactions[0]@1",
        "different": "transactions[0]@3: fraud-alerts: alert differs in threshold: 0.4 instead of 0.5",
    }


def test_the_audit_waits_for_the_group_that_is_behind_with_the_tables() -> None:
    """One of two groups has read one profile less, until its next progress record shows all of them."""
    log = GrowingLog(world_of(AMOUNTS), [12])
    log.commit()
    (first,) = log.topics["job-progress"]
    content = json.loads(first.value or b"")
    spans = content["partitions"][1:]
    behind = [{**spans[0], "end_offset": spans[0]["end_offset"] - 1}, *spans[1:]]
    log.topics["job-progress"] = [changed(first, key_groups=2)]
    log.write("job-progress", changed(first, key_groups=2, key_group=1, partitions=behind))
    audited = Audited(log)
    audited.settle()
    assert audited.follower.point is None
    log.write("job-progress", changed(first, key_groups=2, key_group=1, partitions=spans))
    audited.settle()
    assert audited.follower.checked == 10


def test_what_a_predecessor_has_read_counts_no_more_after_a_takeover() -> None:
    """Two groups have become one; partitions of job-progress are read in any order."""
    place = {"topic": SETTINGS.topics.profiles, "partition": 0}
    own = {"topic": SETTINGS.topics.transactions, "partition": 0, "end_offset": 7}

    def record(group: int, groups: int, commit_id: int, read: int, **fields: object) -> Record:
        row = {
            "key_group": group, "key_groups": groups, "commit_id": commit_id, **fields,
            "partitions": [own, {**place, "end_offset": read}],
        }  # fmt: skip
        return Record(SETTINGS.topics.job_progress, group, 0, 0, b"job", json.dumps(row).encode())

    points = SettledPoints(SETTINGS.topics, "job", 0.0)
    points.add(record(0, 1, 9, 40, takeover={"commit_id": 9}))
    for group in (0, 1):
        points.add(record(group, 2, 8, 100 * group))
    points.mark(1.0)
    settled = points.settled(1.0)
    assert settled is not None
    assert settled.slowest == settled.furthest == {(SETTINGS.topics.profiles, 0): 40}


@settings(max_examples=25, deadline=None)
@given(
    amounts=st.lists(st.sampled_from([0, 10, 20, 600, 700, 900]), min_size=6, max_size=40),
    cuts=st.sets(st.integers(1, 39)),
    share=st.sampled_from([0.3, 0.6, 1.0]),
    lost=st.sets(st.integers(0, 39)),
    doubled=st.sets(st.integers(0, 39)),
    restarts=st.booleans(),
)
def test_an_audit_in_any_steps_finds_the_same_as_one_of_the_whole_log(
    amounts: list[int],
    cuts: set[int],
    share: float,
    lost: set[int],
    doubled: set[int],
    restarts: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    world, sample = world_of(amounts), Sample(share)
    chopped = GrowingLog(world, sorted({cut for cut in cuts if cut < len(amounts)} | {len(amounts)}))
    whole = GrowingLog(world, [len(amounts)])
    alerts = chopped.planned["fraud-alerts"]
    faulty = [
        alert
        for number, alert in enumerate(alerts)
        for _ in range(2 if number in doubled else 1)
        if number not in lost
    ]
    chopped.planned["fraud-alerts"] = whole.planned["fraud-alerts"] = faulty
    whole.commit()
    # for cards outside the sample, the audit of the whole log gets the correct output
    of_sample = [alert for alert in faulty if sample.has_card((alert.key or b"").decode())]
    others = [alert for alert in alerts if not sample.has_card((alert.key or b"").decode())]
    whole.topics["fraud-alerts"] = [*of_sample, *others]
    expected = counts(audit(whole))
    audited = Audited(chopped, share)
    result = [0, 0, 0, 0]
    while not chopped.is_over:
        chopped.commit()
        now = audited.settle()
        if restarts:
            result = [a + b for a, b in zip(result, now, strict=True)]
            path = tmp_path_factory.mktemp("audit") / "state"
            audited.follower.memory.save(path)
            audited = Audited(chopped, share, Memory.load(path, SETTINGS, share, BEHIND_S))
        else:
            result = list(now)
    assert tuple(result) == expected


def test_a_restart_continues_from_the_stored_state(tmp_path: Path) -> None:
    log = GrowingLog(world_of(AMOUNTS), [6, 12])
    log.commit()
    first = Audited(log)
    first.settle()
    first.follower.memory.save(tmp_path / "state")
    log.write("fraud-alerts", log.planned["fraud-alerts"][0])
    log.commit()
    memory = Memory.load(tmp_path / "state", SETTINGS, 1.0, BEHIND_S)
    second = Audited(log, memory=memory)
    assert second.settle() == (0, 1, 0, 0)
    assert first.follower.checked + second.follower.checked == 10


@pytest.mark.parametrize(("job_id", "share"), [("other", 1.0), ("job", 0.5)])
def test_state_of_another_job_or_sample_is_refused(tmp_path: Path, job_id: str, share: float) -> None:
    Memory.empty(SETTINGS, 1.0, BEHIND_S).save(tmp_path / "state")
    other = SETTINGS.model_copy(update={"job_id": job_id})
    with pytest.raises(MemoryFileError, match="give another file"):
        Memory.load(tmp_path / "state", other, share, BEHIND_S)


@pytest.mark.parametrize("content", [b"", b"no", b"cos\nsystem\n(S'true'\ntR."])
def test_a_file_that_is_no_state_of_an_audit_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(MemoryFileError, match="remove it"):
        Memory.load(tmp_path / "state", SETTINGS, 1.0, BEHIND_S)


def test_a_log_without_its_beginning_is_refused() -> None:
    log = GrowingLog(world_of(AMOUNTS), [12])
    log.commit()
    del log.topics["transactions"][:2]
    with pytest.raises(FollowError, match="begins at 2, the audit is at 0"):
        Audited(log)


def test_alerts_deleted_by_retention_are_not_missing() -> None:
    log = GrowingLog(world_of(AMOUNTS), [12])
    log.commit()
    alerts = log.topics["fraud-alerts"]
    arrivals = {r.offset: r.timestamp for r in log.topics["transactions"]}
    log.topics["fraud-alerts"] = [
        alert._replace(timestamp=arrivals[json.loads(alert.value or b"")["source"]["offset"]])
        for alert in alerts[3:]
    ]
    audited = Audited(log)
    assert audited.settle() == CLEAN
    assert 0 < audited.follower.checked < 10


def test_the_sample_is_a_share_of_the_cards_and_skips_others_without_parsing() -> None:
    sample = Sample(0.2)
    chosen = [number for number in range(5_000) if sample.has_card(f"c{number}")]
    assert 0.17 < len(chosen) / 5_000 < 0.23
    for number in range(200):
        value = json.dumps({"card_id": f"c{number}", "amount": 1}).encode()
        assert sample.may_have(value) == sample.has_card(f"c{number}")
    for doubtful in (None, b"{", b'{"card\\u005fid": "c1"}', b'{"card_id": "c1", "card_id": "c2"}'):
        assert sample.may_have(doubtful)


def test_dropping_transactions_out_of_reach_changes_no_later_result() -> None:
    whole, short = Card(), Card()
    for number in range(80):
        time = number * DAY
        tx = Transaction(
            f"t{number % 5}", "c", "m", 10_000 * (number % 9 + 1), "EUR", "FR", time, time, 0, number
        )
        for card in (whole, short):
            card.accept(tx)
            if number % 3 == 0:
                card.alerts.append(time)
        short.drop_before(time - 38 * DAY)
        assert (short.count, short.mean, short.squares) == (whole.count, whole.mean, whole.squares)
        assert short.robust_mean == whole.robust_mean
        assert short.suspicious_count(time) == whole.suspicious_count(time)
        assert [t.offset for t in short.namesakes(tx)] == [t.offset for t in whole.namesakes(tx)]
    assert len(short.times) == 39


def test_a_record_that_is_no_alert_is_reported() -> None:
    log = GrowingLog(world_of(AMOUNTS), [12])
    log.commit()
    log.write("fraud-alerts", Record("fraud-alerts", 0, 0, 0, b"c1", b"no json"))
    assert Audited(log, 0.01).settle()[2] == 1


class DyingLog:
    """A log whose brokers stop answering after some reads; the audit is told to stop at that moment."""

    def __init__(self, log: GrowingLog, stop: Event, reads: int) -> None:
        self._log, self._stop, self._left = log, stop, reads

    def __getattr__(self, name: str) -> Any:
        self._left -= 1
        if self._left >= 0:
            return getattr(self._log, name)
        self._stop.set()
        return getattr(TopicLog("127.0.0.1:9"), name)


@pytest.mark.parametrize("reads", [0, 20])
def test_an_endless_audit_stops_soon_while_brokers_are_dead(tmp_path: Path, reads: int) -> None:
    stop, began, state = Event(), time.monotonic(), tmp_path / "state"
    log: Any = DyingLog(GrowingLog(world_of([100, 900]), [2]), stop, reads)
    options = EndlessOptions(share=1.0, every_s=0.01, state=state, metrics_port=0)
    endless.follow(log, SETTINGS, load, options, stop)
    assert stop.is_set()
    assert time.monotonic() - began < TIMEOUT_S / 2
    assert state.exists() == (reads > 0)


class SilentBrokers:
    """A Kafka client whose brokers never answer; its first request tells the audit to stop."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop
        self.limits_s: list[float] = []

    def list_topics(self, topic: str, timeout_s: float) -> Any:
        """Return metadata that is known already."""
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

    def committed(self, partitions: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        raise self._silence(timeout_s)

    def get_watermark_offsets(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        raise self._silence(timeout_s)

    def _silence(self, timeout_s: float) -> KafkaException:
        self._stop.set()
        self.limits_s.append(timeout_s)
        return KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    "read", [lambda log: log.ends("transactions"), lambda log: log.committed("job", ("transactions",))]
)
def test_an_endless_audit_waits_for_one_short_request_to_silent_brokers(read: Callable[[Any], Any]) -> None:
    stop, log = Event(), TopicLog("127.0.0.1:9")
    silent: Any = SilentBrokers(stop)
    log._offset_consumer = lambda *_, **__: silent  # type: ignore[method-assign]
    asked: Any = SimpleNamespace(**dict.fromkeys(("beginnings", "ends", "committed"), lambda *_: read(log)))
    endless.follow(asked, SETTINGS, load, EndlessOptions(share=1.0, metrics_port=0), stop)
    assert silent.limits_s == [STEP_S]
