"""Compares what is on the output topics with what the oracle says, record by record."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

from loadtests.audit.agreement import as_told, different_fields
from loadtests.audit.findings import DIFFERENT, DUPLICATED, MISSING, UNEXPECTED, Findings
from loadtests.oracle import Outcome, Part, Record, digest, part
from streaming_job.contracts.topics import Topics

Place = tuple[Any, ...]
"""(topic, partition, offset) of a transaction; of a shadow alert also rollout_id and name of a challenger."""


class Found:
    """The output topics, as compact as an audit allows; what has been compared is taken out.

    Args:
        findings: where everything that does not agree goes.
        topics: names of the topics.
    """

    def __init__(self, findings: Findings, topics: Topics | None = None) -> None:
        self._findings, self._topics = findings, topics or Topics()
        # not by alert_id: a transaction that comes again, long after it was forgotten, has the same
        self._alerts: dict[str, dict[Place, Record]] = {
            name: {}
            for name in (
                self._topics.fraud_alerts, self._topics.suppressed_alerts, self._topics.shadow_alerts
            )
        }  # fmt: skip
        self._dead_letters: dict[Place, tuple[str, bytes]] = {}

    def add_alert(self, record: Record) -> None:
        """Take in a record of fraud-alerts, suppressed-alerts or shadow-alerts."""
        try:
            alert = json.loads(record.value or b"")
            source = alert["source"]
            place: Place = str(source["topic"]), int(source["partition"]), int(source["offset"])
            if record.topic == self._topics.shadow_alerts:
                place = *place, str(alert["rollout_id"]), str(alert["challenger"])
        except (ValueError, KeyError, TypeError):
            self._findings.add(record.topic, UNEXPECTED, f"{_place(record)}: not an alert")
            return
        found = self._alerts[record.topic]
        if place in found:
            text = f"{_place(record)}: alert of {_words(place)} again"
            self._findings.add(record.topic, DUPLICATED, text)
            return
        found[place] = record

    def add_dead_letter(self, record: Record) -> None:
        """Take in a record of dead-letters."""
        try:
            letter = json.loads(record.value or b"")
            place = letter["topic"], letter["partition"], letter["offset"]
            content = digest(_content(letter, "key"), _content(letter, "value"))
            reason = letter["reason"]
        except (ValueError, KeyError, TypeError):
            self._findings.add(record.topic, UNEXPECTED, f"{_place(record)}: not a dead letter")
            return
        if place in self._dead_letters:
            text = f"{_place(record)}: dead letter of {_words(place)} again"
            self._findings.add(record.topic, DUPLICATED, text)
            return
        self._dead_letters[place] = reason, content

    def compare_alert(self, outcome: Outcome) -> None:
        """Take out the alert that an outcome asks for, from the topic that it has to be on."""
        expected = outcome.alert
        assert expected is not None
        suppressed = "suppressed_by" in expected
        topic = self._topics.suppressed_alerts if suppressed else self._topics.fraud_alerts
        self._compare(topic, (outcome.topic, outcome.partition, outcome.offset), expected, outcome)

    def compare_shadows(self, outcome: Outcome) -> None:
        """Take out the shadow alerts that an outcome asks for."""
        for expected in outcome.shadows:
            source = outcome.topic, outcome.partition, outcome.offset
            place = *source, expected["rollout_id"], expected["challenger"]
            self._compare(self._topics.shadow_alerts, place, expected, outcome)

    def _compare(self, topic: str, place: Place, expected: dict[str, Any], outcome: Outcome) -> None:
        record, where = self._alerts[topic].pop(place, None), f"{_words(place)}: {topic}"
        if record is None:
            text = f"{where}: no alert for transaction {expected['transaction_id']}"
            self._findings.add(topic, MISSING, text)
            return
        found = json.loads(record.value or b"")
        if "features" in expected:
            expected = as_told(expected, found, outcome.looked_at, outcome.optional)
        wrong = different_fields(expected, found)
        if record.key != expected["card_id"].encode():
            wrong.append("the record's key")
        if wrong:
            details = "; ".join(
                f"{name}: {found.get(name)!r} instead of {expected.get(name)!r}" for name in wrong
            )
            self._findings.add(topic, DIFFERENT, f"{where}: alert differs in {details}")

    def compare_dead_letter(self, outcome: Outcome) -> None:
        """Take out the dead letter that an outcome asks for."""
        assert outcome.reason is not None
        topic, place = self._topics.dead_letters, (outcome.topic, outcome.partition, outcome.offset)
        found = self._dead_letters.pop(place, None)
        if found is None:
            text = f"{_words(place)}: no dead letter {outcome.reason.value}"
            self._findings.add(topic, MISSING, text)
        elif found != (outcome.reason.value, outcome.digest):
            what = found[0] if found[0] != outcome.reason.value else "other bytes than the record's"
            text = f"{_words(place)}: dead letter {what} instead of {outcome.reason.value}"
            self._findings.add(topic, DIFFERENT, text)

    def finish(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Whatever is left was not expected, except what the audited part of the log does not reach."""
        for topic, alerts in self._alerts.items():
            for place, record in alerts.items():
                self._left(topic, place, ends, f"{_place(record)}: unexpected alert")
        for place, (reason, _) in self._dead_letters.items():
            self._left(self._topics.dead_letters, place, ends, f"unexpected dead letter {reason}")

    def _left(self, topic: str, place: Place, ends: Mapping[tuple[str, int], int], what: str) -> None:
        if place[2] < ends.get((place[0], place[1]), math.inf):
            self._findings.add(topic, UNEXPECTED, f"{what} for {_words(place)}")


def _content(letter: dict[str, Any], name: str) -> Part | None:
    """What a dead letter tells of the key or the value: the bytes themselves, or their size and SHA-256."""
    carried = letter[f"{name}_base64"]
    if carried is not None:
        return part(base64.b64decode(carried))
    sha256 = letter.get(f"{name}_sha256")
    return None if sha256 is None else Part(int(letter[f"{name}_bytes"]), bytes.fromhex(sha256))


def _words(place: Place) -> str:
    return f"{place[0]}[{place[1]}]@{place[2]}" + "".join(f" {name}" for name in place[3:])


def _place(record: Record) -> str:
    return _words((record.topic, record.partition, record.offset))
