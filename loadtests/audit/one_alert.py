"""`fraud verify ALERT_ID`: one alert made again, byte for byte, from what the log holds of its card.

Twice, in two ways: by the job's own code, whose bytes have to be equal, and by the oracle, which shares none
of it and has to say the same. A card's decisions rest on nothing of other cards: its own records are enough.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from feature_store.arena import MemoryArena
from feature_store.catalogue import NAMES
from feature_store.group_state import GroupState
from feature_store.journal import MemoryPieces, Meta
from loadtests.audit.agreement import as_told, different_fields
from loadtests.audit.card_log import CardLog, collect
from loadtests.audit.topic_log import Log
from loadtests.oracle import Oracle, Outcome, ProfileLog, Record, RolloutLog, Rules
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.contracts import Reason
from streaming_job.decide.rollout_history import NoRolloutError
from streaming_job.decode.transactions import TimeLimits
from streaming_job.group.core import GroupCore
from streaming_job.group.core import Rules as JobRules
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Records
from streaming_job.settings import JobSettings

LoadModel = Callable[[ModelRef], Scorer]
SHOWN = 10
"""Offsets of the card's transactions that are listed, the newest."""
EVERYTHING = 1 << 62
"""An offset beyond all: the job has had its say about every rollout."""


@dataclass(frozen=True)
class Rebuilt:
    """An alert, what was made of its card's log, and what it rests on."""

    alert_id: str
    places: list[str]
    """Where the alert was written."""
    is_equal: bool
    """Whether the job's code makes the same bytes."""
    differences: list[str]
    """Fields in which those bytes differ; all of them if nothing was made."""
    oracle_differences: list[str]
    """Fields in which the oracle does not agree."""
    rests_on: dict[str, Any]

    @property
    def is_clean(self) -> bool:
        """Whether it was written once and both ways lead to it."""
        return self.is_equal and not self.oracle_differences and len(self.places) == 1

    def report(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "alert_id": self.alert_id,
            "written_at": self.places,
            "bytes_equal": self.is_equal,
            "differences": self.differences,
            "oracle_differences": self.oracle_differences,
            "rests_on": self.rests_on,
        }


def rebuild(log: Log, settings: JobSettings, load: LoadModel, alert_id: str) -> Rebuilt:
    """Make an alert again.

    Args:
        log: where the topics are.
        settings: of the job.
        load: gives a model.
        alert_id: of the alert.

    Raises:
        AlertError: there is no such alert, or the log no longer holds what it rests on.
        ModelError: a model cannot be had.
    """
    topics = settings.topics
    card = collect(log, topics, alert_id)
    load = cache(load)  # each decision asks, and each load checks the golden rows
    partitions = len(log.ends(topics.transactions))
    record = card.alerts[0]
    made = _made(card, settings, partitions, load)
    outcome = _by_oracle(card, settings, partitions, load)
    if outcome.alert is None:
        oracle = ["everything: it finds no alert"]
    else:
        expected = as_told(outcome.alert, card.alert, outcome.looked_at, outcome.optional)
        oracle = different_fields(expected, card.alert)
    found = json.loads(made) if made is not None else {}
    wrong = [
        f"{name}: {card.alert.get(name)!r} on the log, {found.get(name)!r} made again"
        for name in dict.fromkeys([*card.alert, *found])
        if card.alert.get(name) != found.get(name) or (name in card.alert) != (name in found)
    ]
    if made is not None and not wrong and made != record.value:
        wrong = ["the order or the spelling of the fields"]
    places = [f"{one.topic}[{one.partition}]@{one.offset}" for one in card.alerts if _is_same(one, card)]
    return Rebuilt(alert_id, places, made == record.value, wrong, oracle, _rests_on(card))


def _is_same(record: Record, card: CardLog) -> bool:
    """Whether it is of the same transaction: one that comes again after it was forgotten has the same id."""
    return bool(json.loads(record.value or b"")["source"] == card.alert["source"])


def _made(card: CardLog, settings: JobSettings, partitions: int, load: LoadModel) -> bytes | None:
    """What the job's code makes of the card's log; None: no alert."""
    topics = settings.topics
    rules = JobRules(
        topics,
        KeyGroups(settings.partitioner, partitions, 1),
        TimeLimits(settings.allowed_lateness_ms, settings.allowed_skew_ms, settings.refuse_card_numbers),
        lambda ref: load(ref).on(NAMES),
    )
    quiet = {(topics.model_rollouts, 0): EVERYTHING}
    core = GroupCore(
        0, rules, GroupState(MemoryArena()), Meta(), MemoryPieces(), quiet, _set_aside(card.refused)
    )
    core.learn_snapshot_end(card.snapshot_end)
    tables = _as_written([*card.rollouts, *card.profiles])
    partition, offset = card.source
    known = -1 if card.snapshot_end is None else card.snapshot_end
    for arrival, transactions in groupby(card.transactions, lambda record: record.timestamp):
        known = max(known, arrival)
        due = [record for when, record in tables if when <= known]
        tables = tables[len(due) :]
        for records in _columns(due):
            core.fold(records)
        core.take_outcome()
        for records in _columns(list(transactions)):
            while True:
                try:
                    core.decide(records)
                    break
                except NoRolloutError:  # the first champion decides what came before it, too
                    first = next((one for one in tables if one[1].topic == topics.model_rollouts), None)
                    if first is None:
                        raise
                    tables.remove(first)
                    for late in _columns([first[1]]):
                        core.fold(late)
    outcome = core.take_outcome()
    for alert in (*outcome.alerts, *outcome.suppressed):
        if (alert.partition, alert.offset) == (partition, offset):
            return alert.value
    return None


def _as_written(records: Iterable[Record]) -> list[tuple[int, Record]]:
    """When each record of a table was written at the earliest, whatever its timestamp says: in that order."""
    newest: dict[tuple[str, int], int] = {}
    found = []
    for record in records:
        place = record.topic, record.partition
        newest[place] = max(record.timestamp, newest.get(place, 0))
        found.append((newest[place], record))
    return sorted(found, key=lambda written: written[0])


def _set_aside(refused: dict[int, str]) -> dict[int, str]:
    """Of the refused rollouts those whose models could not decide; the others follow from the log."""
    words = {
        reason.value
        for reason in (Reason.MODEL_UNAVAILABLE, Reason.MODEL_REFUSED, Reason.INCOMPATIBLE_FEATURES)
    }
    return {offset: reason for offset, reason in refused.items() if reason in words}


def _columns(records: Iterable[Record]) -> Iterator[Records]:
    """Records as the job gets them from the log, topic by topic, partition by partition."""
    ordered = sorted(records, key=lambda record: record[:3])
    for topic, group in groupby(ordered, lambda record: record.topic):
        found = list(group)
        yield Records(
            topic,
            np.array([r.partition for r in found], dtype=np.int32),
            np.array([r.offset for r in found], dtype=np.int64),
            np.array([r.timestamp for r in found], dtype=np.int64),
            pa.array([r.key for r in found], pa.binary()),
            pa.array([r.value for r in found], pa.binary()),
        )


def _by_oracle(card: CardLog, settings: JobSettings, partitions: int, load: LoadModel) -> Outcome:
    """What the oracle says had to become of the alert's transaction."""
    unavailable = {
        offset for offset, reason in card.refused.items() if reason == Reason.MODEL_UNAVAILABLE.value
    }
    profiles, rollouts = ProfileLog(), RolloutLog(lambda scorer: load(scorer.model), unavailable)
    profiles.read(card.profiles)
    rollouts.read(card.rollouts)
    rules = Rules(
        settings.allowed_lateness_ms,
        settings.allowed_skew_ms,
        partitions,
        settings.partitioner.value,
        settings.refuse_card_numbers,
    )
    oracle = Oracle(profiles, rollouts, lambda scorer: load(scorer.model), rules)
    *_, outcome = oracle.judge(card.transactions)
    return outcome


def _rests_on(card: CardLog) -> dict[str, Any]:
    alert = card.alert
    transactions = [record.offset for record in card.transactions]
    arrival = card.transactions[-1].timestamp
    return {
        "card_id": alert["card_id"],
        "transaction": alert["source"],
        "arrival_time": arrival,
        "transactions_of_card": len(transactions),
        "newest_offsets": transactions[-SHOWN:],
        "profile": alert["profile"],
        "profile_records": [
            f"[{record.partition}]@{record.offset}"
            for record in card.profiles
            if record.timestamp <= arrival or record.timestamp <= (card.snapshot_end or 0)
        ][-SHOWN:],
        "rollout_offsets": [record.offset for record in card.rollouts if record.timestamp <= arrival],
        "rollouts_refused": card.refused,
        "plan": {name: alert.get(name) for name in ("rollout_id", "rollout_seq", "role", "model", "policy")},
        "membership": alert.get("membership"),
        "score": alert["score"],
        "threshold": alert["threshold"],
        "rules": alert["rules"],
        "suspicious_count": alert["suspicious_count"],
        "features": alert["features"],
    }
