"""Why a transaction was decided as it was: from its alert, or from what held when it arrived."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from feature_store.hashing import hash_string
from models.rollouts import machine, membership
from models.rollouts.machine import Decides, Line, Plan
from service.rollouts.errors import UnansweredError, UnknownError
from service.rollouts.history import History
from service.settings import ServiceSettings, say
from streaming_job.log import topic_reader
from streaming_job.log.partitioner import KeyGroups

MOST_RECORDS = 2_000_000
"""Looked at for one answer, all topics together."""
MOST_S = 20.0
AT_ONCE = 5_000
CLIENT = "decisions"


def explain(
    settings: ServiceSettings,
    history: History,
    groups: Mapping[int, Mapping[str, Any]],
    card_id: str,
    transaction_id: str,
    since_ms: int,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """What was decided about a transaction, by whom, and why.

    Args:
        settings: where.
        history: of the rollouts.
        groups: newest progress record of each key group: tells how far each has decided.
        card_id: of the transaction.
        transaction_id: of the transaction.
        since_ms: nothing that was written before is looked at, ms since 1970-01-01 UTC.
        clock: seconds, ascending: bounds the search.

    Raises:
        UnknownError: neither an alert nor the transaction was found.
        UnansweredError: the brokers do not answer, or there is more to read than one answer may cost.
    """
    topics, deadline = settings.topics, clock() + MOST_S
    reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, f"{settings.job_id}-{CLIENT}")
    search = _Search(reader, card_id, transaction_id, since_ms, lambda: clock() > deadline)
    try:
        shadows = search.values(topics.shadow_alerts)
        for topic, outcome in ((topics.fraud_alerts, "alert"), (topics.suppressed_alerts, "suppressed")):
            if found := search.values(topic):
                return {"outcome": outcome, "decision": found[-1], "shadow_alerts": shadows}
        partitions = topic_reader.partitions(reader, topics.transactions)
        own = KeyGroups(settings.partitioner, len(partitions), 1).partition_of(card_id)
        records = list(search.records(topics.transactions, [own]))
    except KafkaException as fault:
        raise UnansweredError(
            "brokers", f"the topics cannot be read: {say(fault)}; check the brokers"
        ) from fault
    finally:
        reader.close()
    if not records:
        raise UnknownError(
            "unknown_transaction",
            f"neither an alert nor the transaction was found since {since_ms}; check the ids, or give an "
            "earlier `since` (ms since 1970-01-01 UTC)",
        )
    return _unalerted(settings, history, groups, card_id, records[0], shadows)


def _unalerted(
    settings: ServiceSettings,
    history: History,
    groups: Mapping[int, Mapping[str, Any]],
    card_id: str,
    record: Message,
    shadows: list[dict[str, Any]],
) -> dict[str, Any]:
    partition, offset, arrival = record.partition() or 0, record.offset() or 0, record.timestamp()[1]
    is_decided = any(
        (part["topic"], part["partition"]) == (settings.topics.transactions, partition)
        and part["end_offset"] > offset
        for group in groups.values()
        for part in group["partitions"]
    )
    plan = plan_at(history, arrival)
    return {
        "outcome": "no_alert" if is_decided else "not_decided_yet",
        "decision": None,
        "source": {"topic": settings.topics.transactions, "partition": partition, "offset": offset},
        "arrival_time": arrival,
        **by_plan(plan, card_id),
        "shadow_alerts": shadows,
        "features": None,
        "why_no_features": "they are written with alerts only; `fraud explain-card` tells of the card",
    }


def plan_at(history: History, arrival: int) -> Plan | None:
    """What held for a transaction: all events that had come when it did; the first champion before any had.

    Args:
        history: of the rollouts.
        arrival: of the transaction, ms.
    """
    line, latest, first = Line(), 0, None
    for entry in history.entries:
        if entry.refused or entry.repeats:
            continue
        # an event hides the ones before it even if broker clocks make it look older than they are
        latest = max(latest, entry.timestamp)
        if latest > arrival and first is not None:
            break
        line = machine.apply(line, entry.event)
        first = first or machine.plan(line)
    return machine.plan(line) or first


def by_plan(plan: Plan | None, card_id: str) -> dict[str, Any]:
    """Who decided a card's transaction under a plan, and whether the card is a member of the canary."""
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
            deciding = next(one for one in plan.challengers if one.challenger == plan.canary)
    return {
        "decided_by": _decides(deciding),
        "membership": member,
        "scored_by": [_decides(one) for one in (plan.champion, *plan.challengers)],
    }


def _decides(one: Decides) -> dict[str, Any]:
    return {
        "rollout_id": one.rollout_id,
        "rollout_seq": one.seq,
        "role": one.role,
        "challenger": one.challenger or None,
        "model": {"name": one.model.name, "version": one.model.version, "digest": one.model.digest},
        "policy": one.policy.digest(),
        "threshold": one.policy.threshold,
    }


class _Search:
    """Looks for the records of one transaction, within bounds."""

    def __init__(
        self, reader: Consumer, card_id: str, transaction_id: str, since_ms: int, is_late: Callable[[], bool]
    ) -> None:
        self._reader, self._since_ms, self._is_late = reader, since_ms, is_late
        self._card_id, self._transaction_id = card_id, transaction_id
        self._hint = orjson.dumps(transaction_id)[1:-1]
        self._left = MOST_RECORDS

    def values(self, topic: str) -> list[dict[str, Any]]:
        """The transaction's records of a topic, decoded; nothing where the topic does not exist."""
        try:
            return [
                orjson.loads(record.value() or b"")
                for record in self.records(topic, topic_reader.partitions(self._reader, topic))
            ]
        except KafkaException as fault:
            if topic_reader.is_missing(fault):
                return []
            raise

    def records(self, topic: str, partitions: list[int]) -> Iterator[Message]:
        """The transaction's records of some partitions, each in the order of its log.

        Raises:
            UnansweredError: there is more to read than one answer may cost.
        """
        wanted = [TopicPartition(topic, partition, self._since_ms) for partition in partitions]
        for place in self._reader.offsets_for_times(wanted, topic_reader.TIMEOUT_S):
            if place.offset < 0:  # nothing has come since
                continue
            for record in topic_reader.to_end(self._reader, place):
                self._left -= 1
                if self._left < 0 or self._is_late():
                    raise UnansweredError(
                        "too_much_to_read",
                        f"there is more on {topic} since {self._since_ms} than one answer may cost; give a "
                        "later `since` (ms since 1970-01-01 UTC), just before the transaction arrived",
                    )
                if self._is_wanted(record):
                    yield record

    def _is_wanted(self, record: Message) -> bool:
        value = record.value() or b""
        if record.key() != self._card_id.encode() or self._hint not in value:
            return False
        try:
            return bool(orjson.loads(value)["transaction_id"] == self._transaction_id)
        except (KeyError, TypeError, ValueError):
            return False
