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
        settled: remembers what was taken out, so that what comes again later is known; None: nothing comes
            later.
    """

    def __init__(
        self, findings: Findings, topics: Topics | None = None, settled: "Settled | None" = None
    ) -> None:
        self.findings, self._topics, self._settled = findings, topics or Topics(), settled
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
            self.findings.add(record.topic, UNEXPECTED, f"{_place(record)}: not an alert")
            return
        found = self._alerts[record.topic]
        if place in found or self._was_there(record.topic, place):
            text = f"{_place(record)}: alert of {_words(place)} again"
            self.findings.add(record.topic, DUPLICATED, text)
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
            self.findings.add(record.topic, UNEXPECTED, f"{_place(record)}: not a dead letter")
            return
        if place in self._dead_letters or self._was_there(record.topic, place):
            text = f"{_place(record)}: dead letter of {_words(place)} again"
            self.findings.add(record.topic, DUPLICATED, text)
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
            self.findings.add(topic, MISSING, text)
            return
        self._settle(topic, place)
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
            self.findings.add(topic, DIFFERENT, f"{where}: alert differs in {details}")

    def compare_dead_letter(self, outcome: Outcome) -> None:
        """Take out the dead letter that an outcome asks for."""
        assert outcome.reason is not None
        topic, place = self._topics.dead_letters, (outcome.topic, outcome.partition, outcome.offset)
        found = self._dead_letters.pop(place, None)
        if found is None:
            text = f"{_words(place)}: no dead letter {outcome.reason.value}"
            self.findings.add(topic, MISSING, text)
            return
        self._settle(topic, place)
        if found != (outcome.reason.value, outcome.digest):
            what = found[0] if found[0] != outcome.reason.value else "other bytes than the record's"
            text = f"{_words(place)}: dead letter {what} instead of {outcome.reason.value}"
            self.findings.add(topic, DIFFERENT, text)

    def finish(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Whatever is left was not expected, except what the audited part of the log does not reach.

        Where more is to come this is asked for again: what is told once is not told again.
        """
        for topic, alerts in self._alerts.items():
            for place in [place for place in alerts if _is_before(place, ends)]:
                text = f"{_place(alerts.pop(place))}: unexpected alert for {_words(place)}"
                self._unexpected(topic, place, text)
        for place in [place for place in self._dead_letters if _is_before(place, ends)]:
            reason, _ = self._dead_letters.pop(place)
            text = f"unexpected dead letter {reason} for {_words(place)}"
            self._unexpected(self._topics.dead_letters, place, text)

    def _unexpected(self, topic: str, place: Place, text: str) -> None:
        self._settle(topic, place)
        self.findings.add(topic, UNEXPECTED, text)

    def _settle(self, topic: str, place: Place) -> None:
        if self._settled is not None:
            self._settled.add(topic, place)

    def _was_there(self, topic: str, place: Place) -> bool:
        return self._settled is not None and self._settled.has(topic, place)


class Settled:
    """Places whose records were found and compared, so that a second one is known for what it is."""

    def __init__(self) -> None:
        self._places: dict[str, set[Place]] = {}

    def add(self, topic: str, place: Place) -> None:
        """Remember a place of which an output topic held a record."""
        self._places.setdefault(topic, set()).add(place)

    def has(self, topic: str, place: Place) -> bool:
        """Whether the topic held a record of the place before."""
        return place in self._places.get(topic, ())

    def drop_before(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Forget what lies before some offsets: what comes of it from now on is unexpected."""
        for topic, places in self._places.items():
            self._places[topic] = {place for place in places if place[2] >= ends.get((place[0], place[1]), 0)}


def _is_before(place: Place, ends: Mapping[tuple[str, int], int]) -> bool:
    return bool(place[2] < ends.get((place[0], place[1]), math.inf))


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
