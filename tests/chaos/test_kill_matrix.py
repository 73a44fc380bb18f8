"""Kills at named steps and at random times: afterwards the alerts equal the oracle's.

All kills hit one installation, and each hits a job that has recovered from the kill before. The audit covers
everything since the beginning, including suspicious_count of every alert. `fraud bench chaos` kills 200 times
by default.

In an everyday run the log is an archive with labels, reversals and profile changes, and the job keeps
merchant facts: the audit covers merchant label features, too, and each fact must be on its topic once. With
FRAUD_HYPOTHESIS=thorough the same kills also hit a second installation: a job without merchant facts, whose
profiles come live from Debezium.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from harness.backup import back_up
from harness.job_log import AGAIN
from harness.labelled_installation import LabelledInstallation, payments
from thoroughness import THOROUGH, only_thorough

from deploy.local import stack as embedded
from deploy.local.stack import Endpoints
from deploy.local.state import Service
from loadtests.audit.topic_log import TopicLog
from loadtests.faults import kills
from loadtests.faults.installation import Installation
from loadtests.faults.kills import IN_WORKER, KillTarget
from loadtests.faults.relay import BURST, Relay
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.facts.clock import hour_of
from streaming_job.labels import ledger
from streaming_job.labels.ledger import Ledger, LedgerError
from streaming_job.runtime.failpoints import OF_EVERY_JOB, Failpoint

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

OF_THE_JOB = OF_EVERY_JOB if THOROUGH else (Failpoint.COMMITTED,)
OF_A_WORKER = IN_WORKER if THOROUGH else (Failpoint.DECIDED,)
"""Everyday runs kill the job after a commit and a worker before one; thorough runs kill each at all of its
steps."""
KILLS = 5
LABELLED, LIVE = "labelled", "live"
RECORDS = (40 if THOROUGH else 6) * BURST
"""Length of the archive; a kill takes one or two bursts."""


@pytest.fixture(scope="module", params=(LABELLED, LIVE) if THOROUGH else (LABELLED,))
def target(
    request: pytest.FixtureRequest,
    stack: Endpoints,
    stack_dir: Path,
    topic_names: Callable[[], Topics],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KillTarget]:
    if request.param == LIVE:
        yield KillTarget(request.getfixturevalue("relay"), stack_dir, random.Random(20))
        return
    installed = LabelledInstallation(stack, topic_names(), tmp_path_factory.mktemp(LABELLED), RECORDS)
    relay = Relay(installed)
    try:
        yield KillTarget(relay, stack_dir, random.Random(20))
    finally:
        relay.job.kill()


@pytest.mark.parametrize("step", OF_A_WORKER)
def test_a_worker_killed_at_a_step_is_replaced_without_loss_or_repetition(
    target: KillTarget, step: Failpoint
) -> None:
    job = target.relay.job
    kills.worker_at(target, step)
    assert target.relay.job is job
    assert job.runs
    target.caught_up()


@pytest.mark.parametrize("step", OF_THE_JOB)
def test_a_job_killed_at_a_step_continues_without_loss_or_repetition(
    target: KillTarget, step: Failpoint
) -> None:
    kills.job_at(target, step)
    target.relay.audit()
    # with merchant facts the commit may hold nothing but a promise: then no transaction is decided again
    if step is Failpoint.COMMITTED and not isinstance(target.relay.installed, LabelledInstallation):
        # if everything was committed before the kill, the audit has not waited for the new job
        target.relay.until(lambda: AGAIN in target.relay.job.log, "transactions decided again")
    scratch = target.relay.installed.settings.work_dir / "tmp"
    (of_process,) = scratch.iterdir()
    assert of_process.name.startswith(f"{target.relay.job.pid}-")


def lag_by_offsets(installed: Installation) -> int:
    """Lag in transactions, as any tool computes it."""
    servers = installed.stack.bootstrap_servers
    result = TopicLog(servers).committed(installed.settings.job_id, (installed.topics.transactions,))
    committed = {TopicPartition(*partition): offset for partition, offset in result.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    ends = admin.list_offsets({partition: OffsetSpec.latest() for partition in committed})
    return sum(ends[partition].result(30).offset - offset for partition, offset in committed.items())


def decided_total(installed: Installation) -> int:
    """Number of transactions that the progress records report as decided."""
    return sum(
        part["end_offset"] - part["start_offset"]
        for record in installed.progress()
        for part in json.loads(record.value or b"")["partitions"]
        if part["topic"] == installed.topics.transactions
    )


def test_lag_is_correct_while_a_group_is_stopped(target: KillTarget) -> None:
    installed = target.relay.installed
    target.caught_up()  # without committed offsets the lag would be 0
    worker = target.relay.hang_at(Failpoint.DECIDED)
    # the other key group continues
    target.relay.until(
        lambda: lag_by_offsets(installed) == installed.sent - decided_total(installed), "a true lag"
    )
    assert lag_by_offsets(installed) > 0
    worker.kill()
    target.relay.audit()
    assert lag_by_offsets(installed) == 0


@only_thorough
def test_killing_the_driver_ends_all_processes(target: KillTarget) -> None:
    kills.driver_only(target)
    target.relay.audit()


@only_thorough
def test_killed_jvm_ends_the_job_with_its_name(target: KillTarget) -> None:
    kills.jvm(target)
    target.relay.audit()


@only_thorough
def test_kills_at_any_time_while_transactions_flow(target: KillTarget) -> None:
    for _ in range(KILLS):
        kills.job_any_time(target)
    target.relay.audit()


@only_thorough
@pytest.mark.parametrize("service", embedded.ALL)
def test_the_job_survives_a_killed_and_restarted_server(target: KillTarget, service: Service) -> None:
    job = target.relay.job
    kills.server(target, service)
    assert target.relay.job is job
    target.relay.audit()


@only_thorough
def test_second_instance_deposes_the_first(target: KillTarget) -> None:
    relay, installed, first = target.relay, target.relay.installed, target.relay.job
    copy, work = installed.directory / "copy", installed.directory / "other-work"
    relay.audit()
    back_up(Path(installed.settings.checkpoint), copy)
    with installed.start(checkpoint=str(copy), work_dir=work) as second:
        relay.job = second
        relay.until(second.epochs, "the second instance")
        relay.burst()
        assert first.exit_code() == 3, first.log
        assert first.error.startswith("error: another instance of job ")
        relay.burst()
        relay.audit()
    # the job decides the transactions since its older checkpoint again
    relay.restart()
    relay.audit()


@only_thorough
def test_job_that_is_killed_continues_from_an_old_checkpoint(target: KillTarget) -> None:
    """Records after the checkpoint are read again; the facts of their labels are on the topic already."""
    relay, checkpoint = target.relay, Path(target.relay.installed.settings.checkpoint)
    copy = relay.installed.directory / "old"
    relay.burst(BURST // 2)
    target.caught_up()
    back_up(checkpoint, copy)
    ended = relay.job.epochs()
    relay.burst(BURST // 2)
    relay.until(lambda: relay.job.epochs() > ended + 1, "epochs that the copy does not have")
    relay.hang_at(Failpoint.COMMITTED)
    relay.job.kill()
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    relay.restart()
    relay.until(lambda: AGAIN in relay.job.log, "transactions decided again")  # the copy lacks whole epochs
    relay.audit()


def labelled(target: KillTarget) -> LabelledInstallation:
    """The installation; the test is skipped if it has no labels."""
    if not isinstance(target.relay.installed, LabelledInstallation):
        pytest.skip("no labels flow here")
    return target.relay.installed


def test_each_fact_is_written_once(target: KillTarget) -> None:
    installed = labelled(target)
    target.caught_up()
    assert {"unknown_transaction", "malformed_json", "empty_value"} <= installed.reasons().keys()
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


def test_labels_are_added_and_shown(target: KillTarget) -> None:
    installed = labelled(target)
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
    assert [result["record"]["kind"] for result in ledger.of_card(known, "stranger")] == ["refund"]
