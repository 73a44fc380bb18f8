"""Comparison of the output topics with the oracle's outcomes, record by record."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

from loadtests.audit.agreement import different_fields, unrounded_fields, with_features_of_its_release
from loadtests.audit.commits import release_of
from loadtests.audit.findings import DIFFERENT, DUPLICATED, MISSING, UNEXPECTED, Findings
from loadtests.oracle import ExpectedOutcome, Record, SizedHash, digest, sized_hash
from streaming_job.contracts.topics import Topics

Source = tuple[Any, ...]
"""(topic, partition, offset) of an input record; for a shadow alert also rollout_id and challenger."""


class UncomparedRecords:
    """Index of the output records that are not yet compared.

    Args:
        findings: collects the differences.
        topics: names of the topics.
        settled: remembers compared records, to recognise later duplicates; None if all records are added
        before the first comparison.
    """

    def __init__(
        self, findings: Findings, topics: Topics | None = None, settled: "ComparedSources | None" = None
    ) -> None:
        self.findings, self._topics, self._settled = findings, topics or Topics(), settled
        # by source, not alert_id: an alert for a late repetition of a transaction has the first alert's id
        self._alerts: dict[str, dict[Source, Record]] = {
            name: {}
            for name in (
                self._topics.fraud_alerts, self._topics.suppressed_alerts, self._topics.shadow_alerts
            )
        }  # fmt: skip
        self._dead_letters: dict[Source, tuple[str, bytes]] = {}

    def add_alert(self, record: Record) -> None:
        """Add a record of fraud-alerts, suppressed-alerts or shadow-alerts."""
        try:
            alert = json.loads(record.value or b"")
            position = alert["source"]
            source: Source = str(position["topic"]), int(position["partition"]), int(position["offset"])
            if record.topic == self._topics.shadow_alerts:
                source = *source, str(alert["rollout_id"]), str(alert["challenger"])
        except (ValueError, KeyError, TypeError):
            self.findings.add(record.topic, UNEXPECTED, f"{_position(record)}: not an alert")
            return
        alerts = self._alerts[record.topic]
        if source in alerts or self._was_compared(record.topic, source):
            text = f"{_position(record)}: another alert for {_text(source)}"
            self.findings.add(record.topic, DUPLICATED, text)
            return
        alerts[source] = record

    def add_dead_letter(self, record: Record) -> None:
        """Add a record of dead-letters."""
        try:
            letter = json.loads(record.value or b"")
            source = letter["topic"], letter["partition"], letter["offset"]
            content = digest(_content(letter, "key"), _content(letter, "value"))
            reason = letter["reason"]
        except (ValueError, KeyError, TypeError):
            self.findings.add(record.topic, UNEXPECTED, f"{_position(record)}: not a dead letter")
            return
        if source in self._dead_letters or self._was_compared(record.topic, source):
            text = f"{_position(record)}: another dead letter for {_text(source)}"
            self.findings.add(record.topic, DUPLICATED, text)
            return
        self._dead_letters[source] = reason, content

    def compare_alert(self, outcome: ExpectedOutcome) -> None:
        """Compare the alert that an outcome requires, and remove it from the index."""
        expected = outcome.alert
        assert expected is not None
        suppressed = "suppressed_by" in expected
        topic = self._topics.suppressed_alerts if suppressed else self._topics.fraud_alerts
        self._compare(topic, (outcome.topic, outcome.partition, outcome.offset), expected, outcome)

    def compare_shadows(self, outcome: ExpectedOutcome) -> None:
        """Compare the shadow alerts that an outcome requires, and remove them from the index."""
        for expected in outcome.shadows:
            names = expected["rollout_id"], expected["challenger"]
            source = outcome.topic, outcome.partition, outcome.offset, *names
            self._compare(self._topics.shadow_alerts, source, expected, outcome)

    def _compare(
        self, topic: str, source: Source, expected: dict[str, Any], outcome: ExpectedOutcome
    ) -> None:
        record, where = self._alerts[topic].pop(source, None), f"{_text(source)}: {topic}"
        if record is None:
            text = f"{where}: no alert for transaction {expected['transaction_id']}"
            self.findings.add(topic, MISSING, text)
            return
        self._settle(topic, source)
        alert = json.loads(record.value or b"")
        if "features" in expected:
            expected = with_features_of_its_release(expected, alert, outcome.looked_at)
        wrong = [
            f"{name}: {alert.get(name)!r} instead of {expected.get(name)!r}"
            for name in different_fields(expected, alert)
        ]
        wrong += [f"{name}: not rounded to the decimals of the contract" for name in unrounded_fields(alert)]
        if (release := release_of(record)) is None or alert.get("release") != release:
            wrong.append(f"release: {alert.get('release')!r}, and the record's header names {release!r}")
        key = expected["card_id"].encode()
        if record.key != key:
            wrong.append(f"the record's key: {record.key!r} instead of {key!r}")
        if wrong:
            self.findings.add(topic, DIFFERENT, f"{where}: alert differs in {'; '.join(wrong)}")

    def compare_dead_letter(self, outcome: ExpectedOutcome) -> None:
        """Compare the dead letter that an outcome requires, and remove it from the index."""
        assert outcome.reason is not None
        topic, source = self._topics.dead_letters, (outcome.topic, outcome.partition, outcome.offset)
        letter = self._dead_letters.pop(source, None)
        if letter is None:
            text = f"{_text(source)}: no dead letter {outcome.reason.value}"
            self.findings.add(topic, MISSING, text)
            return
        self._settle(topic, source)
        reason = outcome.reason.value
        if letter != (reason, outcome.digest):
            difference = (
                f"instead of {reason}" if letter[0] != reason else "has another key or value than the record"
            )
            text = f"{_text(source)}: dead letter {letter[0]} {difference}"
            self.findings.add(topic, DIFFERENT, text)

    def finish(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Report the remaining records as unexpected, except those whose input is not audited yet.

        May be called repeatedly: each record is reported once.

        Args:
            ends: (topic, partition) of inputs -> first offset that is not audited; a partition without an
            entry is audited whole.
        """
        for topic, alerts in self._alerts.items():
            for source in [source for source in alerts if _is_before(source, ends)]:
                text = f"{_position(alerts.pop(source))}: unexpected alert for {_text(source)}"
                self._unexpected(topic, source, text)
        for source in [source for source in self._dead_letters if _is_before(source, ends)]:
            reason, _ = self._dead_letters.pop(source)
            text = f"unexpected dead letter {reason} for {_text(source)}"
            self._unexpected(self._topics.dead_letters, source, text)

    def _unexpected(self, topic: str, source: Source, text: str) -> None:
        self._settle(topic, source)
        self.findings.add(topic, UNEXPECTED, text)

    def _settle(self, topic: str, source: Source) -> None:
        if self._settled is not None:
            self._settled.add(topic, source)

    def _was_compared(self, topic: str, source: Source) -> bool:
        return self._settled is not None and self._settled.has(topic, source)


class ComparedSources:
    """Sources of output records already compared or reported as unexpected; another record is a duplicate."""

    def __init__(self) -> None:
        self._places: dict[str, set[Source]] = {}

    def add(self, topic: str, source: Source) -> None:
        """Remember the source of a compared record of an output topic."""
        self._places.setdefault(topic, set()).add(source)

    def has(self, topic: str, source: Source) -> bool:
        """Return whether a record of this source was already compared."""
        return source in self._places.get(topic, ())

    def drop_before(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Drop the sources before these offsets; later output records for them count as unexpected."""
        for topic, places in self._places.items():
            self._places[topic] = {
                source for source in places if source[2] >= ends.get((source[0], source[1]), 0)
            }


def _is_before(source: Source, ends: Mapping[tuple[str, int], int]) -> bool:
    return bool(source[2] < ends.get((source[0], source[1]), math.inf))


def _content(letter: dict[str, Any], name: str) -> SizedHash | None:
    """Return size and SHA-256 of the input's key or value; None if it is null.

    They are computed if the letter has the bytes, otherwise the letter states them.
    """
    carried = letter[f"{name}_base64"]
    if carried is not None:
        return sized_hash(base64.b64decode(carried))
    sha256 = letter.get(f"{name}_sha256")
    return None if sha256 is None else SizedHash(int(letter[f"{name}_bytes"]), bytes.fromhex(sha256))


def _text(source: Source) -> str:
    return f"{source[0]}[{source[1]}]@{source[2]}" + "".join(f" {name}" for name in source[3:])


def _position(record: Record) -> str:
    return _text((record.topic, record.partition, record.offset))
