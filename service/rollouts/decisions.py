"""The explanation of a transaction's decision: its alert, or the rollouts in force when it arrived."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import orjson
from confluent_kafka import KafkaException, Message, TopicPartition

from feature_store.kernels.hashing import hash_string
from models.rollouts import machine, membership
from models.rollouts.state import Decides, Line, Plan
from service.health.groups import Groups
from service.rollouts.errors import UnansweredError, UnknownError
from service.rollouts.history import History
from service.settings import ServiceSettings
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode import card_numbers, strict
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.strict import Rejected
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Consumer, describe
from streaming_job.log.partitioner import KeyGroups, Layout
from streaming_job.progress.last_record import positions
from streaming_job.schemas import ledger
from streaming_job.schemas.ledger import SchemaTopicError

MOST_RECORDS = 2_000_000
"""Maximum number of records read for one answer, over all topics."""
MOST_S = 20.0
CLIENT = "decisions"


def explain(
    settings: ServiceSettings,
    history: History,
    groups: Groups,
    card_id: str,
    transaction_id: str,
    since_ms: int,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Explain the decision on a transaction: outcome, model, rollout and membership.

    Args:
        since_ms: start of the search, ms since 1970-01-01 UTC; earlier records are not read.

    Raises:
        UnknownError: neither an alert nor the transaction was found.
        UnansweredError: the brokers do not answer, a topic of alerts does not exist, or one of the limits of
            the search was reached.
    """
    topics, deadline = settings.topics, clock() + MOST_S
    name = f"{settings.job_id}-{CLIENT}"
    brokers = LetterSettings(
        bootstrap_servers=settings.bootstrap_servers, kafka=settings.kafka, topics=topics
    )
    schemas = cache(lambda: ledger.read(brokers, name))
    reader = clients.reader(settings, name)
    search = _Search(reader, card_id, transaction_id, since_ms, lambda: clock() > deadline, schemas)
    try:
        shadows = search.values(topics.shadow_alerts)
        for topic, outcome in ((topics.fraud_alerts, "alert"), (topics.suppressed_alerts, "suppressed")):
            if alerts := search.values(topic):
                return {"outcome": outcome, "decision": alerts[-1], "shadow_alerts": shadows}
        partitions = topic_reader.partitions(reader, topics.transactions)
        own = partitions_of(card_id, len(partitions), settings, groups)
        records = list(search.records(topics.transactions, own))
    except KafkaException as fault:
        raise UnansweredError(
            "brokers", f"the topics cannot be read: {describe(fault)}; check the brokers"
        ) from fault
    except SchemaTopicError as fault:
        raise UnansweredError("brokers", f"{fault}; check the brokers") from fault
    finally:
        reader.close()
    if not records:
        raise UnknownError(
            "unknown_transaction",
            f"neither an alert nor the transaction was found since {since_ms}; check the ids, or give an "
            "earlier `since` (ms since 1970-01-01 UTC)",
        )
    return _unalerted(settings, history, groups, search, records, shadows)


def _unalerted(
    settings: ServiceSettings,
    history: History,
    groups: Groups,
    search: "_Search",
    records: list[Message],
    shadows: list[dict[str, Any]],
) -> dict[str, Any]:
    chosen = groups.get(0, {}).get("settings", {})
    refusals = [refused(search.json(record), record.timestamp()[1], chosen) for record in records]
    # a dead letter may have been corrected, and sent again
    at = refusals.index(None) if None in refusals else 0
    record, refusal = records[at], refusals[at]
    partition, offset, arrival = record.partition() or 0, record.offset() or 0, record.timestamp()[1]
    place = settings.topics.transactions, partition
    is_decided = any(positions(record).get(place, 0) > offset for record in groups.values())
    plan = None if refusal else plan_at(history, arrival)
    outcome = "dead_letter" if refusal else "no_alert"
    return {
        "outcome": outcome if is_decided else "not_decided_yet",
        "decision": None,
        "refused": refusal and {"reason": refusal.reason.value, "detail": refusal.detail},
        "source": {"topic": settings.topics.transactions, "partition": partition, "offset": offset},
        "arrival_time": arrival,
        **by_plan(plan, search.card_id),
        "shadow_alerts": shadows,
        "features": None,
        "why_no_features": "features are written with alerts only; `fraud explain-card` shows the card",
    }


def partitions_of(card_id: str, partitions: int, settings: ServiceSettings, groups: Groups) -> list[int]:
    """Return the partitions of the transactions topic that may have a card's transactions.

    The running job's progress names the partitioner, and the partitions among which it divides the cards; the
    topic may have got more. Without progress the partitioner is that of the settings.
    """
    layout = groups.get(0, {}).get("layout")
    job = Layout(settings.topics.transactions, settings.partitioner, partitions)
    if layout is not None and layout["topic"] == job.topic:
        job = Layout.from_json(layout)
    numbers = (min(job.partitions, partitions), partitions)
    return sorted({KeyGroups(job.partitioner, number, 1).partition_of(card_id) for number in numbers})


def refused(value: bytes, arrival: int, settings: Mapping[str, Any]) -> Rejected | None:
    """Return why the job makes a transaction a dead letter, by the settings that its progress names.

    The partition is not checked.
    """
    try:
        fields = strict.transaction(value)
        if settings.get("refuse_card_numbers"):
            card_numbers.check(fields)
        if "allowed_lateness_ms" in settings and "allowed_skew_ms" in settings:
            limits = settings["allowed_lateness_ms"], settings["allowed_skew_ms"]
            strict.check_time(fields["event_time"], arrival, *limits)
    except Rejected as fault:
        return fault
    return None


def plan_at(history: History, arrival: int) -> Plan | None:
    """Return the plan (champion, challengers, canary's share) in force at a transaction's arrival.

    Before the first promotion it is the plan of the first champion.
    """
    line, latest, first = Line(), 0, None
    for entry in history.all_accepted:
        # events take effect in log order, even if broker clocks make a later event look older
        latest = max(latest, entry.timestamp)
        if latest > arrival and first is not None:
            break
        line = machine.apply(line, entry.event)
        first = first or machine.plan(line)
    return machine.plan(line) or first


def by_plan(plan: Plan | None, card_id: str) -> dict[str, Any]:
    """Return the model that decided a card's transaction under a plan, and the card's canary membership."""
    if plan is None:
        return {"decided_by": None, "membership": None, "scored_by": []}
    deciding, member = plan.champion, None
    if plan.canary:
        lo = np.array([hash_string(card_id)[0]], dtype=np.uint64)
        bucket = int(membership.bucket(lo, plan.salt)[0])
        member = {
            "rollout_id": plan.trial,
            "challenger": plan.canary,
            "bucket": bucket,
            "share_bp": plan.share_bp,
            "is_member": bucket < plan.share_bp,
        }
        if member["is_member"]:
            deciding = next(item for item in plan.challengers if item.challenger == plan.canary)
    return {
        "decided_by": _decides(deciding),
        "membership": member,
        "scored_by": [_decides(item) for item in (plan.champion, *plan.challengers)],
    }


def _decides(item: Decides) -> dict[str, Any]:
    return {
        "rollout_id": item.rollout_id,
        "rollout_seq": item.seq,
        "role": item.role,
        "challenger": item.challenger or None,
        "model": {"name": item.model.name, "version": item.model.version, "digest": item.model.digest},
        "policy": item.policy.digest(),
        "threshold": item.policy.threshold,
    }


class _Search:
    """A bounded search for the records of one transaction."""

    def __init__(
        self,
        reader: Consumer,
        card_id: str,
        transaction_id: str,
        since_ms: int,
        is_late: Callable[[], bool],
        schemas: Callable[[], RecordSchemas | None],
    ) -> None:
        self._reader, self._since_ms, self._is_late, self._schemas = reader, since_ms, is_late, schemas
        self.card_id, self._transaction_id = card_id, transaction_id
        self._hint = orjson.dumps(transaction_id)[1:-1]
        self._left = MOST_RECORDS

    def values(self, topic: str) -> list[dict[str, Any]]:
        """Return the transaction's decoded records on a topic.

        Raises:
            UnansweredError: the topic does not exist, or one of the limits of the search was reached.
        """
        try:
            return [
                orjson.loads(record.value() or b"")
                for record in self.records(topic, topic_reader.partitions(self._reader, topic))
            ]
        except KafkaException as fault:
            if topic_reader.is_missing(fault):
                raise UnansweredError(
                    "brokers",
                    f"topic {topic} does not exist, so it is not known whether there are alerts; check "
                    "FRAUD_TOPICS, or create it with `fraud job topics`",
                ) from fault
            raise

    def records(self, topic: str, partitions: list[int]) -> Iterator[Message]:
        """Yield the transaction's records in some partitions, each partition in log order.

        Raises:
            UnansweredError: one of the limits of the search was reached.
        """
        times = [TopicPartition(topic, partition, self._since_ms) for partition in partitions]
        for start in self._reader.offsets_for_times(times, topic_reader.TIMEOUT_S):
            if start.offset < 0:  # no records since then
                continue
            for record in follow.to_end(self._reader, start):
                self._left -= 1
                if self._left < 0 or self._is_late():
                    limit = f"{MOST_RECORDS:,} records" if self._left < 0 else f"{MOST_S:g} s"
                    raise UnansweredError(
                        "too_much_to_read",
                        f"the search was cut after {limit}, in {topic} since {self._since_ms}; so it is not "
                        "known whether there are alerts or a transaction: give a later `since` (ms since "
                        "1970-01-01 UTC), just before the transaction arrived",
                    )
                if self._is_wanted(record):
                    yield record

    def json(self, record: Message) -> bytes:
        """Return a record's value, a framed one as JSON; raises Rejected for one that cannot be read."""
        value = record.value() or b""
        if value.startswith(b"\0") and (schemas := self._schemas()) is not None:
            value = schemas.json(value, record.timestamp()[1]) or b""
        return value

    def _is_wanted(self, record: Message) -> bool:
        if record.key() != self.card_id.encode():
            return False
        try:
            value = self.json(record)
            # a serialiser may write any character as an escape
            may_be = self._hint in value or b"\\" in value
            return may_be and bool(orjson.loads(value)["transaction_id"] == self._transaction_id)
        except (Rejected, KeyError, TypeError, ValueError):
            return False
