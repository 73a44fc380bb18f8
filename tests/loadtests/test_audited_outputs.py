"""Both audits find a lost, a second and a changed record in every output of the table of topics."""

import json

import pytest
from audited_log import TOPICS, audit, changed
from followed_log import Audited, GrowingLog
from oracle_world import World, challenger

from loadtests.audit.comparison import OUTPUTS

pytestmark = pytest.mark.unit


def everything() -> World:
    """A world whose transactions fill every output: a trial whose canary has a cooldown, and bad JSON."""
    world = World(threshold=0.5)
    shadow = challenger("s", "3", role="shadow", threshold=0.9)
    world.propose("x", challenger(cooldown_s=60, escalate_after=3), shadow)
    world.event("shadow_started", "x", 2)
    world.event("canary_set", "x", 3, challenger="b", share_bp=5_000)
    for second, amount in enumerate((300.0, 100.0, 600.0, 300.0, 700.99)):
        for card in range(8):
            world.tx(second * 1000, amount, card_id=f"c{card}")
        world.raw_tx(b"{", arrival=second * 1000)
    return world


@pytest.fixture(params=OUTPUTS)
def output(request: pytest.FixtureRequest) -> str:
    """Name of an output topic."""
    return getattr(TOPICS, request.param)


@pytest.fixture
def log() -> GrowingLog:
    """What a correct job is about to commit."""
    world = everything()
    return GrowingLog(world, [len(world.transactions)])


def findings(log: GrowingLog, output: str) -> list[tuple[int, ...]]:
    """Missing, duplicated, unexpected and different records of an output, by each of the two audits."""
    log.commit()
    followed = Audited(log)
    followed.settle()
    return [tuple(found.of(output).values()) for found in (audit(log).findings, followed.follower.findings)]


def test_a_log_without_faults_is_clean(log: GrowingLog, output: str) -> None:
    assert len(log.planned[output]) > 1
    assert findings(log, output) == [(0, 0, 0, 0)] * 2
    assert audit(log).is_clean


def test_a_lost_record_is_found(log: GrowingLog, output: str) -> None:
    del log.planned[output][1]
    assert findings(log, output) == [(1, 0, 0, 0)] * 2
    assert any(": progress counts " in problem for problem in audit(log).problems)


def test_a_second_record_is_found(log: GrowingLog, output: str) -> None:
    log.planned[output].append(log.planned[output][1])
    assert findings(log, output) == [(0, 1, 0, 0)] * 2


def test_a_record_of_another_transaction_is_found(log: GrowingLog, output: str) -> None:
    record = log.planned[output][1]
    source = json.loads(record.value or b"").get("source", {})
    elsewhere = {"source": {**source, "topic": "elsewhere"}} if source else {"topic": "elsewhere"}
    log.planned[output].append(changed(record, **elsewhere))
    assert findings(log, output) == [(0, 0, 1, 0)] * 2


def test_a_changed_record_is_found(log: GrowingLog, output: str) -> None:
    record = log.planned[output][1]
    other = {"value_base64": None} if output == TOPICS.dead_letters else {"card_id": "another"}
    log.planned[output][1] = changed(record, **other)
    assert findings(log, output) == [(1, 0, 1, 1)] * 2
    if output != TOPICS.dead_letters:
        assert any("another digest" in problem for problem in audit(log).problems)


def test_a_record_of_a_transaction_that_does_not_exist_is_found(log: GrowingLog, output: str) -> None:
    record = log.planned[output][1]
    source = json.loads(record.value or b"").get("source", {})
    end = len(log.topics[TOPICS.transactions])
    absent = changed(record, **({"source": {**source, "offset": end}} if source else {"offset": end}))
    log.commit()
    log.write(output, absent)
    followed = Audited(log)
    followed.settle()
    for found in (audit(log).findings, followed.follower.findings):
        assert tuple(found.of(output).values()) == (0, 0, 1, 0)


def test_committed_offsets_that_were_moved_back_do_not_make_an_audit_clean() -> None:
    world = everything()
    log = GrowingLog(world, [10, 20, len(world.transactions)])
    while not log.is_over:
        log.commit()
    assert audit(log).events == len(world.transactions)
    log.group["transactions", 0] = 0
    assert any("commit 1 and later ones are beyond the committed" in text for text in audit(log).problems)
