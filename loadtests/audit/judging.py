"""Runs the oracle over the transactions of a log, in this process or in one process for each partition.

A card belongs to one partition (its transactions elsewhere are dead letters), so partitions are judged
independently. Every judge reads the tables, and the merchants' payments of all partitions, for itself.
"""

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from feature_store.errors import FraudError
from feature_store.merchants.catalogue import computed
from loadtests.audit.topic_log import Log, TopicLog
from loadtests.oracle import (
    CARD_TABLES,
    AcceptanceRules,
    ExpectedOutcome,
    Kind,
    MerchantLog,
    Model,
    Oracle,
    Pair,
    ProfileLog,
    RolloutLog,
    Scorer,
)
from models import loading
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.settings import JobSettings

STEP = 2_000
"""Transactions judged between two reports."""

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) -> first offset that is not audited."""
Load = Callable[[Scorer], Model]
"""Loads the model of a rollout's champion or challenger."""


class JudgeError(FraudError):
    """There is no rollout to judge by, or a judging process ended.

    Promote a model; or check the log and the available memory.
    """


class Judged(NamedTuple):
    """Outcomes of some transactions."""

    kinds: Counter[Kind]
    outcomes: list[ExpectedOutcome]
    """Outcomes with an output record; the others need no comparison."""
    trials: Mapping[Pair, Counter[str]]
    """Trial counts over all transactions of a judge; in its last report only, empty in earlier ones."""


Judge = Callable[[Ends], Iterator[Judged]]
"""Judges all transactions before the ends."""


def partition_ends(ends: Ends, topic: str) -> dict[int, int]:
    """Return the ends of one topic, by partition."""
    return {partition: end for (name, partition), end in ends.items() if name == topic}


def tables(
    log: Log, settings: JobSettings, ends: Ends, load: Load
) -> tuple[ProfileLog, RolloutLog, list[ExpectedOutcome]]:
    """Return the tables as folded from the log, and the dead letters that their refused records cause.

    Raises:
        JudgeError: there is no champion, so nothing can have been decided.
    """
    topics = settings.topics
    by_card = {field: table() for field, table in CARD_TABLES.items()}
    rollouts = RolloutLog(load, _unavailable(log, topics), computed(merchants=settings.merchant_facts))
    refused = rollouts.read(log.read(topics.model_rollouts, partition_ends(ends, topics.model_rollouts)))
    for field, table in by_card.items():
        topic = getattr(topics, field)
        refused += table.read(log.read(topic, partition_ends(ends, topic)))
    if rollouts.plan() is None:
        raise JudgeError(f"there is no champion on {topics.model_rollouts}; nothing can have been decided")
    profiles = by_card["profiles"]
    assert isinstance(profiles, ProfileLog)
    return profiles, rollouts, refused


def _unavailable(log: Log, topics: Topics) -> set[int]:
    """Return the offsets of the proposals that the job refused because a model was unavailable."""
    reason = Reason.MODEL_UNAVAILABLE.value
    values = (record.value or b"" for record in log.read(topics.dead_letters))
    letters = [json.loads(letter) for letter in values if reason.encode() in letter]
    return {
        letter["offset"]
        for letter in letters
        if (letter["topic"], letter["reason"]) == (topics.model_rollouts, reason)
    }


def merchants(
    log: Log, settings: JobSettings, ends: Ends, profiles: ProfileLog
) -> tuple[MerchantLog | None, list[ExpectedOutcome]]:
    """Return all merchants' payments (None without merchant facts) and the dead letters of the labels."""
    if settings.merchant_delay_ms is None:
        return None, []
    topics = settings.topics
    payments = MerchantLog(_rules(log, settings), settings.merchant_delay_ms, profiles)
    records = (
        log.read(topic, partition_ends(ends, topic))
        for topic in (topics.transactions, topics.labels, topics.chargebacks)
    )
    return payments, payments.read(*records)


def _rules(log: Log, settings: JobSettings) -> AcceptanceRules:
    return AcceptanceRules(
        settings.allowed_lateness_ms,
        settings.allowed_skew_ms,
        len(log.ends(settings.topics.transactions)),
        settings.partitioner.value,
        settings.refuse_card_numbers,
    )


def in_this_process(log: Log, settings: JobSettings, load: Load, everywhere: Ends | None = None) -> Judge:
    """Return a judge that runs in this process.

    Args:
        everywhere: ends of all partitions, for the merchants' payments; default: those given to the judge.
    """

    def judge(ends: Ends) -> Iterator[Judged]:
        topic = settings.topics.transactions
        profiles, rollouts, _ = tables(log, settings, ends, load)
        payments, _ = merchants(log, settings, everywhere or ends, profiles)
        oracle = Oracle(profiles, rollouts, load, _rules(log, settings), merchants=payments)
        judged = Judged(Counter(), [], {})
        for outcome in oracle.judge(log.read(topic, partition_ends(ends, topic))):
            judged.kinds[outcome.kind] += 1
            if outcome.records or outcome.kind is Kind.DEAD_LETTER:
                judged.outcomes.append(outcome)
            if judged.kinds.total() == STEP:
                yield judged
                judged = Judged(Counter(), [], {})
        yield judged._replace(trials=oracle.trials.counts())

    return judge


def in_processes(settings: JobSettings) -> Judge:
    """Return a judge that runs one process for each partition; the models come from the registry."""

    def judge(ends: Ends) -> Iterator[Judged]:
        context = get_context("spawn")
        readers: list[Connection] = []
        for partition in ends:
            if partition[0] != settings.topics.transactions:
                continue
            reader, writer = context.Pipe(duplex=False)
            own_ends = {other: end for other, end in ends.items() if other[0] != partition[0]}
            own_ends[partition] = ends[partition]
            # daemons end with this process; if it is killed, their next report fails and they end too
            context.Process(
                target=_judge_partition, args=(settings, own_ends, ends, writer), daemon=True
            ).start()
            writer.close()
            readers.append(reader)
        while readers:
            ready = set(wait(readers))
            for reader in [reader for reader in readers if reader in ready]:
                try:
                    report = reader.recv()
                except EOFError:
                    raise JudgeError("a judging process ended unexpectedly; see its output above") from None
                if isinstance(report, Exception):
                    raise report
                if report is None:
                    readers.remove(reader)
                else:
                    yield report

    return judge


def from_registry(settings: JobSettings) -> Load:
    """Return a function that loads models from the registry and checks their digests, as the job does."""
    directory = settings.work_dir / "models"
    return lambda scorer: loading.load(scorer.model, settings.mlflow_tracking_uri, directory)


def _judge_partition(settings: JobSettings, ends: Ends, everywhere: Ends, reports: Connection) -> None:
    gc.disable()  # histories have millions of objects and no cycles: collecting garbage only costs time
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    try:
        for judged in in_this_process(log, settings, from_registry(settings), everywhere)(ends):
            reports.send(judged)
        reports.send(None)
    except BrokenPipeError:
        pass  # the reader has ended
    except FraudError as error:
        reports.send(error)
