"""What the bank knew and when: profile versions per card, and rollouts, by their arrival on the log."""

import re
from collections.abc import Iterable

from loadtests.oracle import decode
from loadtests.oracle.card import Profile
from loadtests.oracle.decode import RefusedError
from loadtests.oracle.records import Kind, Outcome, Record, digest
from models.rollouts import Rollout
from streaming_job.contracts import ContractError, Reason

BEGINNING = 0
"""Not later than any arrival."""
SNAPSHOT, DELETE = "r", "d"
CHANGES = ("c", "u", SNAPSHOT)
"""Debezium's operations that carry a row."""
STATUS = re.compile("active|blocked|closed")
MOST_CREDIT = 1e15
MOST_DAYS = 3_000_000


def dead_letter(record: Record, reason: Reason) -> Outcome:
    """The outcome of a record that breaks its contract."""
    return Outcome(
        record.topic,
        record.partition,
        record.offset,
        Kind.DEAD_LETTER,
        reason,
        digest=digest(record.key, record.value),
    )


class ProfileLog:
    """Every version of every profile, by card in the order of the log."""

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[int, Profile | None]]] = {}
        """By card: known from (ms), and the profile, None where the row was deleted."""

    def read(self, records: Iterable[Record]) -> list[Outcome]:
        """Fold the profile topic, each partition in the order of offsets; returns the dead letters."""
        refused = []
        for record in records:
            try:
                self._fold(record)
            except RefusedError as refusal:
                refused.append(dead_letter(record, refusal.reason))
        return refused

    def _fold(self, record: Record) -> None:
        if record.value is None:
            card_id = decode.identifier(decode.parse_object(record.key), "card_id")
            self._versions.setdefault(card_id, []).append((record.timestamp, None))
            return
        envelope = decode.parse_object(record.value)
        operation = envelope.get("op")
        if operation == DELETE:
            card_id = decode.identifier(envelope.get("before"), "card_id")
            self._versions.setdefault(card_id, []).append((record.timestamp, None))
            return
        if operation not in CHANGES:
            raise RefusedError(Reason.INVALID_VALUE)
        row = envelope.get("after")
        versions = self._versions.setdefault(decode.identifier(row, "card_id"), [])
        known_from = BEGINNING if operation == SNAPSHOT else record.timestamp
        status = decode.text(row, "status", STATUS)
        home_country = decode.text(row, "home_country", decode.COUNTRY)
        decode.text(row, "currency", decode.CURRENCY)
        credit_limit = decode.amount(row, "credit_limit", MOST_CREDIT)
        risk_tier = decode.integer(row, "risk_tier", 0, 3)
        opened_on = decode.integer(row, "opened_on", -MOST_DAYS, MOST_DAYS)
        profile = Profile(
            status,
            home_country,
            credit_limit,
            risk_tier,
            opened_on,
            record.partition,
            record.offset,
            known_from,
        )
        # what the log told before is newer than what a snapshot found in the table
        if operation != SNAPSHOT or not versions:
            versions.append((known_from, profile))

    def in_force(self, card_id: str, arrival: int) -> Profile | None:
        """The newest version that the log held at `arrival`; None without one or after a delete."""
        for known_from, profile in reversed(self._versions.get(card_id, [])):
            if known_from <= arrival:
                return profile
        return None


class RolloutLog:
    """Every rollout in the order of the log."""

    def __init__(self) -> None:
        self._rollouts: list[tuple[int, Rollout]] = []

    def __len__(self) -> int:
        return len(self._rollouts)

    def read(self, records: Iterable[Record]) -> list[Outcome]:
        """Fold the rollout topic in the order of offsets; returns the dead letters."""
        refused = []
        for record in records:
            if not record.value:
                refused.append(dead_letter(record, Reason.EMPTY_VALUE))
                continue
            try:
                self._rollouts.append((record.timestamp, Rollout.from_json(record.value)))
            except ContractError:
                refused.append(dead_letter(record, Reason.INVALID_VALUE))
        return refused

    def in_force(self, arrival: int) -> Rollout:
        """The newest rollout that the log held at `arrival`; the first of all for what arrived before it."""
        for known_from, rollout in reversed(self._rollouts):
            if known_from <= arrival:
                return rollout
        return self._rollouts[0][1]
