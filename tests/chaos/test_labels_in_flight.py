"""Kills and an old checkpoint while labels, reversals and merchant facts are in flight.

Afterwards every alert has the merchant label features that the oracle computes from the whole log, and each
fact is on its topic once.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.backup import back_up
from harness.job_log import AGAIN
from harness.labelled_installation import LabelledInstallation, payments
from thoroughness import THOROUGH, only_thorough

from deploy.local import stack as embedded
from deploy.local.stack import Endpoints
from loadtests.faults import kills
from loadtests.faults.kills import IN_WORKER, Scene
from loadtests.faults.relay import BURST, Relay
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.facts.clock import hour_of
from streaming_job.labels import ledger
from streaming_job.labels.ledger import Ledger, LedgerError
from streaming_job.runtime.failpoints import Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

OF_A_WORKER = IN_WORKER if THOROUGH else (Step.DECIDED,)
OF_THE_JOB = tuple(Step) if THOROUGH else ()
RECORDS = 16_000 if THOROUGH else 3 * BURST


@pytest.fixture(scope="module")
def scene(
    stack: Endpoints,
    stack_dir: Path,
    topic_names: Callable[[], Topics],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    installed = LabelledInstallation(stack, topic_names(), tmp_path_factory.mktemp("labelled"), RECORDS)
    relay = Relay(installed)
    try:
        yield Scene(relay, stack_dir, random.Random(23))
    finally:
        relay.job.kill()


def installation(scene: Scene) -> LabelledInstallation:
    installed = scene.relay.installed
    assert isinstance(installed, LabelledInstallation)
    return installed


@pytest.mark.parametrize("step", OF_A_WORKER)
def test_killed_worker_loses_and_repeats_no_label(scene: Scene, step: Step) -> None:
    job = scene.relay.job
    kills.worker_at(step)(scene)
    assert scene.relay.job is job


@pytest.mark.parametrize("step", OF_THE_JOB)
def test_killed_job_loses_and_repeats_no_label(scene: Scene, step: Step) -> None:
    kills.job_at(step)(scene)
    scene.relay.audit()


@only_thorough
def test_killed_broker_loses_and_repeats_no_label(scene: Scene) -> None:
    scene.relay.burst()
    embedded.kill(scene.stack_dir, "kafka")
    embedded.up(scene.stack_dir)
    scene.relay.burst()
    scene.relay.audit()


def test_job_that_is_killed_continues_from_an_old_checkpoint(scene: Scene) -> None:
    """The labels after the checkpoint are read again, and their facts are on the topic already."""
    relay, checkpoint = scene.relay, Path(scene.relay.installed.settings.checkpoint)
    copy = relay.installed.directory / "copy"
    relay.burst(BURST // 2)
    scene.caught_up()
    back_up(checkpoint, copy)
    ended = relay.job.epochs()
    relay.burst(BURST // 2)
    relay.until(lambda: relay.job.epochs() > ended + 1, "epochs that the copy does not have")
    relay.hang_at(Step.COMMITTED)
    relay.job.kill()
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    relay.restart()
    relay.audit()
    assert AGAIN in relay.job.log


def test_each_fact_is_written_once(scene: Scene) -> None:
    installed = installation(scene)
    verdict = scene.relay.audit()
    assert {"unknown_transaction", "malformed_json", "empty_value"} <= verdict.dead_letters.keys()
    alerts, facts = installed.alerts(), installed.facts()
    for fact in facts:
        validate(Contract.MERCHANT_FACT, fact)
    reports = [fact for fact in facts if fact["kind"] == "report"]
    assert {report["fraud"] for report in reports} == {True, False}, "nothing was reversed"
    written = Counter((*report["source"].values(), report["arrival"]) for report in reports)
    assert set(written.values()) == {1}
    counts: Counter[tuple[int, int]] = Counter()
    for fact in facts:
        if fact["kind"] == "counts":
            for merchant, count in zip(fact["merchants"], fact["counts"], strict=True):
                counts[merchant, fact["hour"]] += count
    promises = {fact["key_group"]: fact["until"] for fact in facts if fact["kind"] == "promise"}
    assert len(promises) == installed.settings.key_groups
    over = hour_of(min(promises.values()))
    paid = payments(alerts)
    assert {at: count for at, count in counts.items() if at[1] < over} == {
        at: count for at, count in paid.items() if at[1] < over
    }
    assert counts.total() > 500
    streaks = [alert for alert in alerts if alert["features"]["merchant_streak"]]
    assert len(streaks) > 100, "hardly any label took effect while transactions flowed"


def test_labels_are_added_and_shown(scene: Scene) -> None:
    installed = installation(scene)
    label = {
        "transaction_id": "t0",
        "card_id": "stranger",
        "kind": "refund",
        "source": "ada",
        "occurred_at": 1,
    }
    writer = Ledger(installed.stack.bootstrap_servers, {}, installed.topics.labels)
    known = LetterSettings(bootstrap_servers=installed.stack.bootstrap_servers, topics=installed.topics)
    with pytest.raises(LedgerError, match="row 1"):
        writer.add([{**label, "maturity": "final"}, label])
    assert writer.add([{**label, "maturity": "final"}]) == 1
    assert [found["record"]["kind"] for found in ledger.of_card(known, "stranger")] == ["refund"]
