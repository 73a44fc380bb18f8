"""Audits over switches to a replay with other rollouts, and back: each side is judged by its own rollouts.

transactions  |------ 0 ------|------ 1 ------|------ 0 ------|------ 1 ------|
alerts        of rollouts 0,   of rollouts 1,  of rollouts 0,  of rollouts 1
their counts  of 0 alone,      of 1 alone,     of 0 alone,     of 1 alone, silent ones included
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from audited_log import changed, counts
from harness.log_world import TOPICS
from harness.random_trials import load_any
from harness.random_world import random_world
from harness.switched_log import SECOND, SwitchedLog

from loadtests.audit import follow
from loadtests.audit.core import Ends, Judged
from loadtests.audit.judging import Unavailable, judged_alone, shares
from loadtests.audit.memory import Memory
from loadtests.audit.moves import Stretch
from loadtests.audit.one_alert import rebuild
from loadtests.audit.settings_audit import MixedRolloutsError
from loadtests.audit.topic_log import TopicReadError
from loadtests.audit.verify import AuditResult, verify
from loadtests.oracle import Model, Record, Scorer
from streaming_job.progress.record import ROLLOUT_TOPICS

pytestmark = pytest.mark.unit

THERE = [(20, 0), (40, 0), (60, 1), (80, 1)]
AND_BACK = [*THERE, (100, 0), (120, 0)]
AND_THERE_AGAIN = [*AND_BACK, (130, 1), (140, 1), (160, 0), (180, 1)]
CLEAN = (0, 0, 0, 0)
BEHIND_S = 60.0


def load(scorer: Scorer) -> Model:
    return load_any(scorer.model)


def switched(seed: int = 3, script: list[tuple[int, int]] = AND_BACK, partitions: int = 3) -> SwitchedLog:
    size = script[-1][0]
    world, others = (random_world(each, size, partitions, trials=True) for each in (seed, seed + 100))
    return SwitchedLog(world, others, script)


def audit(log: SwitchedLog) -> AuditResult:
    return verify(log, log.settings, load)


def by_side(log: SwitchedLog, topic: str = TOPICS.fraud_alerts) -> dict[int, list[int]]:
    """Places of the alerts on a topic, by the job that has written them."""
    sides: dict[int, list[int]] = {0: [], 1: []}
    for place, record in enumerate(log.topics[topic]):
        source = json.loads(record.value or b"")["source"]
        sides[log.spoken[source["partition"], source["offset"]]].append(place)
    return sides


@pytest.mark.parametrize("script", [THERE, AND_BACK, AND_THERE_AGAIN], ids=["there", "back", "again"])
@pytest.mark.parametrize("seed", range(4))
def test_switches_to_other_rollouts_are_audited_without_a_difference(
    seed: int, script: list[tuple[int, int]]
) -> None:
    log = switched(seed, script).play()
    result = audit(log)
    # random events of breached rollouts have no evidence
    problems = [text for text in result.problems if not text.startswith("the breach of")]
    assert (counts(result), problems) == (CLEAN, []), result.report()
    assert result.events == script[-1][0]
    assert min(map(len, by_side(log).values())) > 5
    # the newest rollouts alone explain neither side: the counts of each are its own, and no union
    topics = {SECOND: log.topics[TOPICS.model_rollouts], TOPICS.model_rollouts: log.topics[SECOND]}
    log.topics |= {name: [r._replace(topic=name) for r in records] for name, records in topics.items()}
    assert counts(audit(log)) > CLEAN


def test_processes_that_judge_a_share_of_the_partitions_each_find_the_same() -> None:
    log = switched(1, AND_BACK).play()

    def judge(unavailable: Unavailable, ends: Ends, parts: Sequence[Stretch]) -> Iterator[Judged]:
        for own in shares(parts):
            yield from judged_alone(log, log.settings, load, unavailable, ends, own)

    together, apart = audit(log), verify(log, log.settings, load, judge=judge)
    assert apart.report() == together.report()
    assert counts(apart) == CLEAN


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    "corrupt",
    [
        lambda alert: {"suspicious_count": {**alert["suspicious_count"], "total": 99}},
        lambda alert: {"threshold": 0.987},
        lambda alert: {"rollout_id": "another"},
    ],
)
def test_a_corrupted_alert_of_either_side_is_found(side: int, corrupt: Callable[[dict], dict]) -> None:
    log = switched().play()
    alerts = log.topics[TOPICS.fraud_alerts]
    for place in (by_side(log)[side][0], by_side(log)[side][-1]):
        whole, alerts[place] = (
            alerts[place],
            changed(alerts[place], **corrupt(json.loads(alerts[place].value or b""))),
        )
        assert counts(audit(log)) == (1, 0, 1, 1)
        alerts[place] = whole


@pytest.mark.parametrize("topic", [TOPICS.fraud_alerts, TOPICS.suppressed_alerts, TOPICS.shadow_alerts])
def test_a_lost_alert_of_either_side_is_missing(topic: str) -> None:
    log = switched(5, AND_THERE_AGAIN).play()
    for place in {places[len(places) // 2] for places in by_side(log, topic).values() if places}:
        lost = log.topics[topic].pop(place)
        assert counts(audit(log)) == (1, 0, 0, 0)
        log.topics[topic].insert(place, lost)


def test_an_alert_that_the_silent_rollouts_decide_is_not_expected() -> None:
    """The alert of the other job for a transaction that it has decided in silence."""
    one, other = switched(3, [(60, 0), (120, 0)]).play(), switched(3, [(60, 1), (120, 1)]).play()
    log, alerts = switched().play(), {}
    for whole in (one, other):
        for record in whole.topics[TOPICS.fraud_alerts]:
            source = json.loads(record.value or b"")["source"]
            alerts[whole is other, source["partition"], source["offset"]] = record
    written = {key[1:] for key in alerts if key[0] == log.spoken[key[1:]]}
    silent = [key for key in alerts if key[0] != log.spoken[key[1:]] and key[1:] not in written]
    assert len(silent) > 3
    for key in (silent[0], silent[-1]):
        log.topics[TOPICS.fraud_alerts].append(alerts[key])
        assert counts(audit(log)) == (0, 0, 1, 0)
        log.topics[TOPICS.fraud_alerts].pop()


def test_one_alert_of_either_side_is_recomputed_by_its_own_rollouts() -> None:
    log = switched(3).play()
    alerts = log.topics[TOPICS.fraud_alerts]
    for side, topic in enumerate((TOPICS.model_rollouts, SECOND)):
        for place in by_side(log)[side][::7]:
            alert = json.loads(alerts[place].value or b"")["alert_id"]
            result = rebuild(log, log.settings, load_any, alert)
            assert result.rests_on["rollout_topic"] == topic
            assert not result.oracle_differences
            assert not result.differences


class Followed:
    """A continuous audit of a switched log, restarted from its file now and then."""

    def __init__(self, log: SwitchedLog, share: float = 1.0) -> None:
        self.log, self.now, self.share = log, 1_000_000.0, share
        self.found = [0, 0, 0, 0]
        self._start(Memory.empty(log.settings, share, BEHIND_S))

    def _start(self, memory: Memory) -> None:
        self.audit = follow.ContinuousAudit(self.log, self.log.settings, load, memory, lambda: self.now)

    def settle(self) -> None:
        """Audit everything that was committed."""
        self.audit.step()
        self.now += BEHIND_S
        self.audit.step()

    def restart(self, path: Path) -> None:
        """Save the state, and continue from the file."""
        self._count()
        self.audit.memory.save(path)
        self._start(Memory.load(path, self.log.settings, self.share, BEHIND_S))

    def _count(self) -> None:
        new = self.audit.findings
        found = new.missing, new.duplicated, new.unexpected, new.different
        self.found = [a + b for a, b in zip(self.found, found, strict=True)]

    @property
    def counts(self) -> tuple[int, ...]:
        """All findings so far."""
        new = self.audit.findings
        found = new.missing, new.duplicated, new.unexpected, new.different
        return tuple(a + b for a, b in zip(self.found, found, strict=True))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_continuous_audit_follows_switches_there_and_back(
    tmp_path: Path, share: float, restarts: bool
) -> None:
    log = switched(2, AND_THERE_AGAIN)
    followed = Followed(log, share)
    while not log.is_over:
        log.commit()
        followed.settle()
        if restarts:
            followed.restart(tmp_path / "state")
        assert followed.counts == CLEAN
    histories = followed.audit.memory.histories
    assert {topic for topic, history in histories.items() if history.cards} == {SECOND}
    alerts, side = log.topics[TOPICS.fraud_alerts], by_side(log)[1]
    late = Followed(log, 1.0)
    alerts[side[0]] = changed(alerts[side[0]], threshold=0.987)
    alerts[side[-1]] = changed(alerts[side[-1]], suspicious_count={"day": 1, "total": 99})
    late.settle()
    assert late.counts == (2, 0, 2, 2)


def test_a_continuous_audit_needs_the_beginning_of_the_log_at_a_switch() -> None:
    log = switched(2, THERE)
    followed = Followed(log)
    log.commit()
    log.commit()
    followed.settle()
    assert followed.counts == CLEAN
    transactions = log.topics[TOPICS.transactions]
    log.topics[TOPICS.transactions] = [r for r in transactions if r.offset >= 5]
    log.play()
    with pytest.raises(follow.FollowError, match=f"switched to the rollouts of {SECOND}"):
        followed.settle()


def test_transactions_after_a_seam_without_its_record_of_key_group_0_are_not_judged() -> None:
    """A Kafka transaction becomes visible in one partition after another."""
    log = switched(3)
    log.settings = log.settings.model_copy(  # those of the job before the way back
        update={"topics": TOPICS.model_copy(update={"model_rollouts": SECOND})}
    )
    followed = Followed(log)
    for _ in THERE:
        log.commit()
    followed.settle()
    progress = log.topics[TOPICS.job_progress]
    zero = _hidden(progress, len(progress), lambda: log.take_over(0))
    assert counts(audit(log)) == CLEAN  # nothing is decided after the seam yet
    zero += _hidden(progress, len(progress), log.commit)
    with pytest.raises(TopicReadError, match="not yet visible"):
        audit(log)
    followed.settle()  # waits for key group 0
    assert followed.counts == CLEAN
    progress += [record._replace(partition=1, offset=n) for n, record in enumerate(zero)]
    followed.settle()
    assert followed.counts == counts(audit(log)) == CLEAN


def _hidden(progress: list[Record], before: int, write: Callable[[], object]) -> list[Record]:
    """Write; take the new progress records of key group 0 away, and return them."""
    write()
    new = progress[before:]
    zero = [record for record in new if json.loads(record.value or b"")["key_group"] == 0]
    others = [record for record in new if record not in zero]
    progress[before:] = [record._replace(offset=before + n) for n, record in enumerate(others)]
    return zero


def test_rollouts_of_two_topics_in_one_state_are_said_to_be_unknown() -> None:
    log = switched(2, THERE).play()
    progress: list[Record] = log.topics[TOPICS.job_progress]
    for place, record in enumerate(progress):
        if json.loads(record.value or b"").get(ROLLOUT_TOPICS) == [SECOND]:
            progress[place] = changed(record, **{ROLLOUT_TOPICS: [TOPICS.model_rollouts, SECOND]})
    with pytest.raises(MixedRolloutsError, match="is unknown"):
        audit(log)
    with pytest.raises(MixedRolloutsError):
        Followed(log).settle()
    alert = json.loads(log.topics[TOPICS.fraud_alerts][by_side(log)[1][0]].value or b"")["alert_id"]
    with pytest.raises(MixedRolloutsError):
        rebuild(log, log.settings, load_any, alert)
