"""`fraud verify ALERT_ID`: rebuilds one alert, byte for byte, from its card's records.

The alert is rebuilt by the job's own code, which must give the same bytes, and by the independent oracle,
which must agree. Without merchant facts, a card's decisions do not depend on other cards, so its own records
and the rollout events are enough; the command refuses a job that keeps merchant facts.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from feature_store.catalogue import NAMES
from feature_store.release import RELEASE
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta
from loadtests.audit.agreement import different_fields, with_features_of_its_release
from loadtests.audit.card_log import CardLog, collect
from loadtests.audit.core import rules_of
from loadtests.audit.topic_log import Log
from loadtests.oracle import ExpectedOutcome, Oracle, ProfileLog, Record, RolloutLog, SchemaLog
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.contracts import Reason
from streaming_job.decide.rollout_history import NoRolloutError
from streaming_job.group.core import GroupCore
from streaming_job.group.rules import Rules, limits_of
from streaming_job.group.silence import Silence
from streaming_job.log.records import Records
from streaming_job.progress.outcome import OutputRecord
from streaming_job.settings import JobSettings

LoadModel = Callable[[ModelRef], Scorer]
SHOWN = 10
"""Number of the card's newest transactions, and of its profile records, whose offsets are listed."""
EVERYTHING = 1 << 62
"""Q of the rollout topic, higher than any offset: every event counts as judged by an earlier run, so the
refusals found on the log apply."""


@dataclass(frozen=True)
class Rebuilt:
    """Result of rebuilding an alert, with the inputs that it depends on."""

    alert_id: str
    places: list[str]
    """Topics, partitions and offsets of the alert's records."""
    is_equal: bool
    """Whether the job's code gives the same bytes."""
    differences: list[str]
    """Fields in which the alert rebuilt by the job's code differs; all fields if it rebuilt none; one
    text if only the order or the spelling of the fields differs."""
    oracle_differences: list[str]
    """Fields in which the oracle's alert differs; one text instead if the oracle finds no alert."""
    rests_on: dict[str, Any]

    @property
    def is_clean(self) -> bool:
        """Whether the alert was written once and both rebuilt alerts agree with it."""
        return self.is_equal and not self.oracle_differences and len(self.places) == 1

    def report(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "alert_id": self.alert_id,
            "written_at": self.places,
            "bytes_equal": self.is_equal,
            "differences": self.differences,
            "oracle_differences": self.oracle_differences,
            "rests_on": self.rests_on,
        }


def rebuild(log: Log, settings: JobSettings, load: LoadModel, alert_id: str) -> Rebuilt:
    """Rebuild an alert and compare it with the one on the log.

    Raises:
        NoRolloutError: no rollout on the log has a champion.
    """
    card = collect(log, settings, alert_id)
    load = cache(load)  # called at each decision; each load scores the model's golden rows, a self-test
    record = card.alerts[0]
    rebuilt = _by_job(card, settings, load)
    outcome = _by_oracle(card, settings, load)
    if outcome.alert is None:
        oracle = ["everything: it finds no alert"]
    else:
        expected = with_features_of_its_release(outcome.alert, card.alert, outcome.looked_at)
        oracle = different_fields(expected, card.alert)
    fields = json.loads(rebuilt) if rebuilt is not None else {}
    wrong = [
        f"{name}: {card.alert.get(name)!r} on the log, {fields.get(name)!r} rebuilt"
        for name in dict.fromkeys([*card.alert, *fields])
        if card.alert.get(name) != fields.get(name) or (name in card.alert) != (name in fields)
    ]
    if rebuilt is not None and not wrong and rebuilt != record.value:
        wrong = ["the order or the spelling of the fields"]
    places = [
        f"{alert.topic}[{alert.partition}]@{alert.offset}" for alert in card.alerts if _is_same(alert, card)
    ]
    return Rebuilt(alert_id, places, rebuilt == record.value, wrong, oracle, _rests_on(card))


def _is_same(record: Record, card: CardLog) -> bool:
    """Return whether an alert has the source of `card.alert`.

    If a transaction is repeated, the alert for the repetition can have the same id, but has another source.
    """
    return bool(json.loads(record.value or b"")["source"] == card.alert["source"])


def _by_job(card: CardLog, settings: JobSettings, load: LoadModel) -> bytes | None:
    """Rebuild the alert by the job's code; None: no alert."""
    topics = settings.topics.model_copy(
        update={"transactions": card.layout.topic, "model_rollouts": card.rollout_topic}
    )
    rules = Rules(
        topics,
        card.layout.key_groups(1),
        limits_of(settings),
        lambda ref: load(ref).on(NAMES),
        losses=card.losses,
        release=str(card.alert.get("release")),  # an alert of another release is rebuilt by this one
    )
    quiet = {(topics.model_rollouts, 0): EVERYTHING}
    core = GroupCore(
        0, rules, GroupState(MemoryArena()), Meta(), MemoryPieces(), Silence(quiet), _set_aside(card.refused)
    )
    core.note_snapshot_end(card.snapshot_end)
    tables = _as_written([*card.rollouts, *card.schemas, *card.profiles])
    partition, offset = card.source
    # the tables are read to their ends before the first transaction
    read_until = max(-1, card.snapshot_end or -1, card.losses.profiles_before or -1)
    for arrival, transactions in groupby(card.transactions, lambda record: record.timestamp):
        read_until = max(read_until, arrival)
        due_records = [record for earliest, record in tables if earliest <= read_until]
        tables = tables[len(due_records) :]
        for records in _columns(due_records):
            core.fold(records)
        core.take_outcome()
        for records in _columns(list(transactions)):
            while True:
                try:
                    core.decide(records)
                    break
                except NoRolloutError:  # the first champion also decides transactions that arrived before it
                    first = next((row for row in tables if row[1].topic == topics.model_rollouts), None)
                    if first is None:
                        raise
                    tables.remove(first)
                    for late in _columns([first[1]]):
                        core.fold(late)
    outcome = core.take_outcome()
    alerts: list[OutputRecord] = outcome.records["fraud_alerts"] + outcome.records["suppressed_alerts"]
    return next((made.value for made in alerts if (made.partition, made.offset) == (partition, offset)), None)


def _as_written(records: Iterable[Record]) -> list[tuple[int, Record]]:
    """Return (earliest time at which the record can have been written, record), sorted, for table records.

    A record was written no earlier than the records before it in its partition, whatever its own timestamp.
    """
    newest: dict[tuple[str, int], int] = {}
    dated = []
    for record in records:
        partition = record.topic, record.partition
        newest[partition] = max(record.timestamp, newest.get(partition, 0))
        dated.append((newest[partition], record))
    return sorted(dated, key=lambda written: written[0])


def _set_aside(refused: dict[int, str]) -> dict[int, str]:
    """Return offset -> reason of events refused for their models; `GroupCore` finds other refusals itself."""
    reasons = {
        reason.value
        for reason in (Reason.MODEL_UNAVAILABLE, Reason.MODEL_REFUSED, Reason.INCOMPATIBLE_FEATURES)
    }
    return {offset: reason for offset, reason in refused.items() if reason in reasons}


def _columns(records: Iterable[Record]) -> Iterator[Records]:
    """Yield records as the job reads them: columns by topic, sorted by partition and offset."""
    ordered = sorted(records, key=lambda record: record[:3])
    for topic, group in groupby(ordered, lambda record: record.topic):
        of_topic = list(group)
        yield Records(
            topic,
            np.array([r.partition for r in of_topic], dtype=np.int32),
            np.array([r.offset for r in of_topic], dtype=np.int64),
            np.array([r.timestamp for r in of_topic], dtype=np.int64),
            pa.array([r.key for r in of_topic], pa.binary()),
            pa.array([r.value for r in of_topic], pa.binary()),
        )


def _by_oracle(card: CardLog, settings: JobSettings, load: LoadModel) -> ExpectedOutcome:
    """Return the oracle's outcome of the alert's transaction."""
    unavailable = {
        offset for offset, reason in card.refused.items() if reason == Reason.MODEL_UNAVAILABLE.value
    }
    profiles, rollouts = ProfileLog(), RolloutLog(lambda scorer: load(scorer.model), unavailable)
    schemas = SchemaLog()
    schemas.read(card.schemas)
    profiles.read(card.profiles)
    rollouts.read(card.rollouts)
    rules = rules_of(settings, card.layout, schemas)
    oracle = Oracle(profiles, rollouts, lambda scorer: load(scorer.model), rules)
    oracle.lost(card.losses.profiles_before, card.losses.windows_before)
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
        "rollout_topic": card.rollout_topic,
        "rollout_offsets": [record.offset for record in card.rollouts if record.timestamp <= arrival],
        "rollouts_refused": card.refused,
        "release": alert.get("release"),
        "rebuilt_by_release": RELEASE,
        "plan": {name: alert.get(name) for name in ("rollout_id", "rollout_seq", "role", "model", "policy")},
        "membership": alert.get("membership"),
        "score": alert["score"],
        "threshold": alert["threshold"],
        "rules": alert["rules"],
        "suspicious_count": alert["suspicious_count"],
        "features": alert["features"],
    }
