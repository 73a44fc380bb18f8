"""The desk on a real broker: simultaneous writers, fenced writers, and the resulting log."""

import atexit
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from harness.memory_rollouts import ADA, BOB, START, KnownModels, proposal, ref
from trial_progress import COUNTS, trial_progress

from deploy.local.stack import Endpoints
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.rollouts.events import Type, installation
from models.rollouts.state import Phase
from service.progress_reader import ProgressReader
from service.rollouts import reading
from service.rollouts.desk import Desk
from service.rollouts.errors import DeskError, StaleError, UnansweredError
from service.rollouts.history import History
from service.rollouts.parts import RolloutParts
from service.rollouts.reading import Job
from service.rollouts.refusals import MOST_KINDS, Refusals
from service.rollouts.requests import Receipt, Step, Stop
from service.rollouts.writing import RolloutWriter
from service.security.audit import AuditError, verify
from service.security.audit_log import AuditLog, require_topics
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.decide.rollout_history import EventVerdict, RolloutHistory, RolloutRecord
from streaming_job.log import clients, follow

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(stack: Endpoints, topic_names: Callable[[], Topics]) -> ServiceSettings:
    topics = topic_names()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    config = topics.configs()
    wanted = (topics.model_rollouts, topics.audit_log, topics.audit_refusals, topics.job_progress)
    for created in admin.create_topics(
        [NewTopic(name, 1, 1, config=config[name]) for name in wanted]
    ).values():
        created.result(30)
    created_settings = ServiceSettings(
        bootstrap_servers=stack.bootstrap_servers, topics=topics, job_id=f"job-{topics.model_rollouts}"
    )
    publish(
        installation(ref(1), Policy(0.5, 6), "r1", "test", START),
        stack.bootstrap_servers,
        topics.model_rollouts,
    )
    return created_settings


def desk_of(settings: ServiceSettings) -> Desk:
    """A sidecar's desk, with the data on the challenger that a canary requires."""
    groups = {0: trial_progress("r2", {"next": COUNTS}, written_at=START)}
    return Desk(settings, clock=lambda: START / 1000, job=lambda: Job(groups), registry=KnownModels())


def step(kind: Type, key: str, **more: Any) -> Step:
    return Step("r2", kind, "because", key, **more)


def refusals_by_the_job(settings: ServiceSettings) -> list[str]:
    """Dead letters that the job would write when it folds the topic."""
    reader = clients.reader(settings, "test")
    try:
        records = [
            RolloutRecord(message.timestamp()[1], message.offset() or 0, message.value(), message.key())
            for message in follow.to_end(reader, TopicPartition(settings.topics.model_rollouts, 0, 0))
        ]
    finally:
        reader.close()
    history = RolloutHistory(computed=["amount:1"])
    letters = history.fold(records, settings.topics, lambda *_: EventVerdict())
    return [f"{letter.reason}: {letter.detail}" for letter in letters]


def test_of_two_sidecars_that_race_one_gets_409_each_time(settings: ServiceSettings) -> None:
    """Pause and resume repeatedly: both sidecars write at once with the same seq."""
    desks = desk_of(settings), desk_of(settings)
    desks[0].propose(proposal(), ADA)
    desks[0].take(step(Type.SHADOW_STARTED, "s"), ADA)
    seq, rounds = 2, 6
    for turn in range(rounds):
        kind = Type.RESUMED if turn % 2 else Type.PAUSED
        gate, answers = threading.Barrier(2), dict[int, Receipt | DeskError]()

        def ask(number: int, kind: Type = kind, turn: int = turn, seq: int = seq) -> None:
            gate.wait(30)  # noqa: B023  # the threads end within the turn
            asked = step(kind, f"{turn}-{number}", expected_seq=seq)
            for _ in range(5):
                try:
                    answers[number] = desks[number].take(asked, (ADA, BOB)[number])  # noqa: B023
                    return
                except DeskError as fault:
                    answers[number] = fault  # noqa: B023
                    if not isinstance(fault, UnansweredError):
                        return
                    # the outcome of the commit is unknown: the error says that the request is to be repeated

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        won = [answer for answer in answers.values() if isinstance(answer, Receipt)]
        lost = [answer for answer in answers.values() if isinstance(answer, DeskError)]
        assert [event.seq for event in won] == [seq + 1], answers
        # check `race`: the loser was fenced at each of its attempts
        assert [refusal.status for refusal in lost] == [409], answers
        assert lost[0].check in ("seq", "race"), answers
        seq += 1
    history = reading.history(settings, {})
    assert [entry.event.seq for entry in history.of("r2")] == list(range(1, seq + 1))
    assert refusals_by_the_job(settings) == []


def test_an_earlier_writer_is_fenced(settings: ServiceSettings) -> None:
    desk_of(settings).propose(proposal(), ADA)
    before = reading.history(settings, {})
    stale = RolloutWriter(settings)
    RolloutWriter(settings)
    event = before.of("r2")[0].event
    with pytest.raises(StaleError) as fault:
        stale.write([event])
    assert (fault.value.check, fault.value.status) == ("race", 409)
    assert reading.history(settings, {}).entries == before.entries


def test_a_repetition_through_another_sidecar_writes_nothing(settings: ServiceSettings) -> None:
    first = desk_of(settings).propose(proposal(), ADA)
    again = desk_of(settings).propose(proposal(), ADA)
    assert (first.offsets, first.repeated) == (again.offsets, False)
    assert again.repeated
    moved = step(Type.SHADOW_STARTED, "s", expected_seq=1)
    assert [desk_of(settings).take(moved, ADA).repeated for _ in range(2)] == [False, True]
    assert len(reading.history(settings, {}).of("r2")) == 2


WAYS = {
    Phase.PROPOSED: [],
    Phase.SHADOW: [Type.SHADOW_STARTED],
    Phase.CANARY: [Type.SHADOW_STARTED, Type.CANARY_SET],
    Phase.PAUSED: [Type.SHADOW_STARTED, Type.CANARY_SET, Type.PAUSED],
}


@pytest.mark.parametrize("phase", WAYS)
def test_rollback_works_in_every_phase_and_the_job_refuses_nothing(
    settings: ServiceSettings, phase: Phase
) -> None:
    desk = desk_of(settings)
    desk.propose(proposal(), ADA)
    for kind in WAYS[phase]:
        desk.take(step(kind, kind.value), ADA)
    assert desk.take(step(Type.ROLLED_BACK, "back"), BOB).phase is Phase.ROLLED_BACK
    assert refusals_by_the_job(settings) == []


def test_a_breach_is_one_transaction_and_the_second_watch_is_refused(settings: ServiceSettings) -> None:
    desk = desk_of(settings)
    desk.propose(proposal(), ADA)
    desk.take(step(Type.SHADOW_STARTED, "s"), ADA)
    ending = Stop("r2", 2, "too many alerts", "next", "alert_rate", {"verdict": "breach"})
    done = desk_of(settings).stop(ending)
    assert done.types == (Type.BREACHED, Type.ROLLED_BACK)
    # records of one transaction are consecutive, followed by its marker
    assert done.offsets[1] == done.offsets[0] + 1
    with pytest.raises(StaleError):
        desk_of(settings).stop(ending)
    assert refusals_by_the_job(settings) == []


def test_an_open_transaction_on_the_topic_is_awaited(settings: ServiceSettings) -> None:
    producer = Producer(
        {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": f"{settings.job_id}-other"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(settings.topics.model_rollouts, b"{}", b"r9")
    producer.flush(30)
    with pytest.raises(StaleError, match="has not ended"):
        desk_of(settings).propose(proposal(), ADA)
    ending = threading.Timer(0.5, producer.abort_transaction, [30])
    ending.start()
    assert desk_of(settings).propose(proposal(), ADA).seq == 1
    ending.join()


def test_every_change_is_in_the_audit_log_and_no_refusal(settings: ServiceSettings) -> None:
    desk = desk_of(settings)
    desk.propose(proposal(), ADA)
    with pytest.raises(DeskError):
        desk.take(step(Type.RESUMED, "r"), BOB)
    desk.take(step(Type.ROLLED_BACK, "b"), BOB)
    values = [stored.value for stored in AuditLog(settings).all()]
    assert verify(values).is_intact
    entries = [json.loads(value) for value in values]
    assert [(entry["actor"], entry["action"], entry["outcome"]) for entry in entries] == [
        ("ada", "rollout.proposed", "done"),
        ("bob", "rollout.rolled_back", "done"),
    ]


def refusals_of(settings: ServiceSettings) -> list[dict[str, Any]]:
    """The records of refusals; one process wrote them, so they are one chain."""
    stored = list(AuditLog(settings, settings.topics.audit_refusals).all())
    assert len({record.chain for record in stored}) <= 1
    values = [record.value for record in stored]
    assert verify(values).is_intact
    return [json.loads(value) for value in values]


def test_refusals_are_recorded_in_a_chain_and_many_of_a_kind_are_counted(settings: ServiceSettings) -> None:
    refusals = Refusals(settings, lambda: START / 1000)
    for number in range(100):
        refusals.note("rollout.paused", f"r{number}", ADA, StaleError("seq", "an older one"))
    refusals.note("rollout.paused", "r2", BOB, StaleError("seq", "an older one"))
    for number in range(100):  # checks that a script varies do not make more kinds than MOST_KINDS
        refusals.note("rollout.paused", "r2", BOB, StaleError(f"check-{number}", "another"))
    refusals.flush()
    records = refusals_of(settings)
    assert [(record["actor"], record["target"]) for record in records[:2]] == [("ada", "r0"), ("bob", "r2")]
    further = [record["detail"]["further"] for record in records if "further" in record["detail"]]
    assert sum(further) + sum("further" not in record["detail"] for record in records) == 201
    assert (records[0]["outcome"], max(further), len(records) <= 2 * (MOST_KINDS + 1)) == (
        "refused",
        99,
        True,
    )


def test_refusals_that_are_only_counted_are_written_once_when_the_process_ends(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Callable[[], object]] = []
    flushed: list[Refusals] = []
    flush = Refusals.flush
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(Refusals, "flush", lambda each: (flushed.append(each), flush(each)))
    parts = RolloutParts(settings, ProgressReader(settings))
    parts.start()
    for number in range(2):
        with pytest.raises(DeskError):
            parts.desk.take(step(Type.RESUMED, f"k{number}"), BOB)
    parts.stop()
    with pytest.raises(DeskError):  # a request that the sidecar still answers
        parts.desk.take(step(Type.RESUMED, "k2"), BOB)
    for end in at_exit:
        end()
    assert [record["detail"].get("further", 0) for record in refusals_of(settings)] == [0, 2]
    assert len(flushed) == 1


def test_refused_requests_in_a_loop_do_not_keep_a_guard_from_ending_the_rollout(
    settings: ServiceSettings,
) -> None:
    """Four threads of another sidecar are refused without a pause while the guard is breached."""
    desk_of(settings).propose(proposal(), ADA)
    desk_of(settings).take(step(Type.SHADOW_STARTED, "s"), ADA)
    other, stop, refused = desk_of(settings), threading.Event(), list[str]()

    def insist(number: int) -> None:
        while not stop.is_set():
            try:
                other.take(step(Type.PAUSED, f"p{number}", expected_seq=9), ADA)
            except DeskError as refusal:
                refused.append(refusal.check)

    script = [threading.Thread(target=insist, args=(number,)) for number in range(4)]
    for thread in script:
        thread.start()
    try:
        while len(refused) < 8:
            assert any(thread.is_alive() for thread in script)
        ending = Stop("r2", 2, "too many alerts", "next", "alert_rate", {"verdict": "breach"})
        assert desk_of(settings).stop(ending).phase is Phase.ROLLED_BACK
    finally:
        stop.set()
        for thread in script:
            thread.join(60)
    assert set(refused) == {"seq"}
    assert refusals_by_the_job(settings) == []


def test_an_audit_log_with_more_partitions_hides_no_change(settings: ServiceSettings) -> None:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    admin.create_partitions([NewPartitions(settings.topics.audit_log, 3)])[settings.topics.audit_log].result(
        30
    )
    names = [f"r{number}" for number in range(2, 8)]
    for name in names:
        desk_of(settings).propose(proposal(f"k-{name}", rollout_id=name), ADA)
        desk_of(settings).take(Step(name, Type.ROLLED_BACK, "because", f"b-{name}"), BOB)
    values = [record.value for record in AuditLog(settings).all()]
    assert [json.loads(value)["target"] for value in values] == [name for name in names for _ in range(2)]
    assert verify(values).is_intact


def test_without_an_audit_log_only_a_guard_may_write(settings: ServiceSettings) -> None:
    topics = settings.topics.model_copy(update={"audit_log": "no-such-topic"})
    blind = settings.model_copy(update={"topics": topics})
    desk_of(settings).propose(proposal(), ADA)
    desk_of(settings).take(step(Type.SHADOW_STARTED, "s"), ADA)
    with pytest.raises(DeskError, match="cannot be audited: topic no-such-topic does not exist") as fault:
        desk_of(blind).take(step(Type.PAUSED, "p"), BOB)
    assert (fault.value.check, fault.value.status) == ("audit", 503)
    with pytest.raises(AuditError, match="topic no-such-topic does not exist; create it"):
        require_topics(blind)
    require_topics(settings)
    ending = Stop("r2", 2, "too many alerts", "next", "alert_rate", {"verdict": "breach"})
    assert desk_of(blind).stop(ending).phase is Phase.ROLLED_BACK


def test_a_missing_broker_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TIMEOUT_S", 2.0)
    settings = ServiceSettings(bootstrap_servers="127.0.0.1:1", kafka={"socket.timeout.ms": "1000"})
    with pytest.raises(DeskError, match="cannot be read") as fault:
        reading.history(settings, {}, History())
    assert fault.value.status == 503
