"""Compares what is on the output topics with what the oracle says, record by record."""

import base64
import json
import math
from dataclasses import dataclass, field
from typing import Any

from loadtests.oracle import Outcome, Part, Record, digest, part

SCORE_TOLERANCE = 1e-12
FEATURE_TOLERANCE = 1e-9
EXAMPLES = 20
"""Findings that are told in words."""

Place = tuple[str, int, int]
"""(topic, partition, offset)."""


@dataclass
class Findings:
    """What does not agree, counted, and told in words for the first ones."""

    missing: int = 0
    """Expected and not found."""
    duplicated: int = 0
    """Found more than once."""
    unexpected: int = 0
    """Found and not expected."""
    different: int = 0
    """Found in the right place with other content: each is one missing and one unexpected as well."""
    examples: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Remember a finding in words, if there are not too many yet."""
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


class Found:
    """The output topics, as compact as an audit allows; what has been compared is taken out."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        # not by alert_id: a transaction that comes again, long after it was forgotten, has the same
        self._alerts: dict[Place, Record] = {}
        self._dead_letters: dict[Place, tuple[str, bytes]] = {}

    def add_alert(self, record: Record) -> None:
        """Take in a record of fraud-alerts."""
        try:
            source = json.loads(record.value or b"")["source"]
            place = str(source["topic"]), int(source["partition"]), int(source["offset"])
        except (ValueError, KeyError, TypeError):
            self._findings.unexpected += 1
            self._findings.tell(f"{_place(record)}: not an alert")
            return
        if place in self._alerts:
            self._findings.duplicated += 1
            self._findings.tell(f"{_place(record)}: alert of {_words(place)} again")
            return
        self._alerts[place] = record

    def add_dead_letter(self, record: Record) -> None:
        """Take in a record of dead-letters."""
        try:
            letter = json.loads(record.value or b"")
            place = letter["topic"], letter["partition"], letter["offset"]
            content = digest(_content(letter, "key"), _content(letter, "value"))
            reason = letter["reason"]
        except (ValueError, KeyError, TypeError):
            self._findings.unexpected += 1
            self._findings.tell(f"{_place(record)}: not a dead letter")
            return
        if place in self._dead_letters:
            self._findings.duplicated += 1
            self._findings.tell(f"{_place(record)}: dead letter of {_words(place)} again")
            return
        self._dead_letters[place] = reason, content

    def compare_alert(self, outcome: Outcome) -> None:
        """Take out the alert that an outcome asks for."""
        expected = outcome.alert
        assert expected is not None
        place = outcome.topic, outcome.partition, outcome.offset
        record, where = self._alerts.pop(place, None), _words(place)
        if record is None:
            self._findings.missing += 1
            self._findings.tell(f"{where}: no alert for transaction {expected['transaction_id']}")
            return
        found = json.loads(record.value or b"")
        wrong = different_fields(_as_told(expected, found, outcome.looked_at), found)
        if record.key != expected["card_id"].encode():
            wrong.append("the record's key")
        if wrong:
            self._differs()
            details = "; ".join(
                f"{name}: {found.get(name)!r} instead of {expected.get(name)!r}" for name in wrong
            )
            self._findings.tell(f"{where}: alert differs in {details}")

    def compare_dead_letter(self, outcome: Outcome) -> None:
        """Take out the dead letter that an outcome asks for."""
        assert outcome.reason is not None
        place = outcome.topic, outcome.partition, outcome.offset
        found = self._dead_letters.pop(place, None)
        if found is None:
            self._findings.missing += 1
            self._findings.tell(f"{_words(place)}: no dead letter {outcome.reason.value}")
        elif found != (outcome.reason.value, outcome.digest):
            self._differs()
            what = found[0] if found[0] != outcome.reason.value else "other bytes than the record's"
            self._findings.tell(f"{_words(place)}: dead letter {what} instead of {outcome.reason.value}")

    def finish(self, ends: dict[tuple[str, int], int]) -> None:
        """Whatever is left was not expected, except what the audited part of the log does not reach."""
        for place, record in self._alerts.items():
            self._left(place, ends, f"{_place(record)}: unexpected alert")
        for place, (reason, _) in self._dead_letters.items():
            self._left(place, ends, f"unexpected dead letter {reason}")

    def _left(self, place: Any, ends: dict[tuple[str, int], int], what: str) -> None:
        topic, partition, offset = place
        if offset < ends.get((topic, partition), math.inf):
            self._findings.unexpected += 1
            self._findings.tell(f"{what} for {_words(place)}")

    def _differs(self) -> None:
        self._findings.different += 1
        self._findings.missing += 1
        self._findings.unexpected += 1


def _as_told(expected: dict[str, Any], found: Any, looked_at: frozenset[str]) -> dict[str, Any]:
    """What to expect of an alert of a release that computed fewer features: those that its model looks at."""
    known = found.get("features") if isinstance(found, dict) else None
    if not isinstance(known, dict) or not looked_at <= known.keys():
        return expected
    features = {name: value for name, value in expected["features"].items() if name in known}
    return {**expected, "features": features}


def different_fields(expected: dict[str, Any], found: Any) -> list[str]:
    """Names of the alert's fields that do not agree; fields that only `found` has are not looked at."""
    if not isinstance(found, dict):
        return ["everything"]
    tolerances = {"score": SCORE_TOLERANCE, "features": FEATURE_TOLERANCE, "reasons": FEATURE_TOLERANCE}
    return [
        name
        for name, value in expected.items()
        if name not in found or not _agree(value, found[name], tolerances.get(name, 0.0))
    ]


def _agree(expected: Any, found: Any, tolerance: float) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and expected.keys() == found.keys()
            and all(_agree(value, found[name], tolerance) for name, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(expected) == len(found)
            and all(_agree(one, other, tolerance) for one, other in zip(expected, found, strict=True))
        )
    if isinstance(expected, bool) or isinstance(found, bool) or not isinstance(expected, int | float):
        return type(expected) is type(found) and bool(expected == found)
    return isinstance(found, int | float) and math.isclose(
        expected, found, rel_tol=tolerance, abs_tol=tolerance
    )


def _content(letter: dict[str, Any], name: str) -> Part | None:
    """What a dead letter tells of the key or the value: the bytes themselves, or their size and SHA-256."""
    carried = letter[f"{name}_base64"]
    if carried is not None:
        return part(base64.b64decode(carried))
    sha256 = letter.get(f"{name}_sha256")
    return None if sha256 is None else Part(int(letter[f"{name}_bytes"]), bytes.fromhex(sha256))


def _words(place: Any) -> str:
    return f"{place[0]}[{place[1]}]@{place[2]}"


def _place(record: Record) -> str:
    return _words((record.topic, record.partition, record.offset))
