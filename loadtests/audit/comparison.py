"""Comparison of the output topics with the oracle's outcomes, record by record."""

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from loadtests.audit.agreement import different_fields, unrounded_fields, with_features_of_its_release
from loadtests.audit.commits import release_of, source_in
from loadtests.audit.content import content_of
from loadtests.audit.findings import DIFFERENT, DUPLICATED, MISSING, UNEXPECTED, Findings
from loadtests.oracle import ExpectedOutcome, Kind, Record, SizedHash, digest, sized_hash
from streaming_job.contracts import Reason
from streaming_job.contracts.topic import Role
from streaming_job.contracts.topics import DIGESTED, TABLE, Topics
from streaming_job.log.records import PartitionId

Source = tuple[Any, ...]
"""(topic, partition, offset) of an input record, and the values of the output's `Topic.identity`."""
LONGEST_KEY = 64 * 1024
"""Bytes of the longest key that is also the Kafka key of its dead letter."""
OUTPUTS = tuple(field for field, row in TABLE.items() if row.role is Role.OUTPUT)
"""The compared topics, by their fields of `Topics`. Merchant facts are compared with the features that depend
on them."""


def output_topics(topics: Topics) -> tuple[str, ...]:
    """Return the names of the compared topics."""
    return tuple(getattr(topics, field) for field in OUTPUTS)


class UncomparedRecords:
    """Index of the output records that are not yet compared."""

    def __init__(self, findings: Findings, topics: Topics | None = None) -> None:
        self.findings, self._topics = findings, topics or Topics()
        # by source, not alert_id: an alert for a late repetition of a transaction has the first alert's id
        self._records: dict[str, dict[Source, Any]] = {field: {} for field in OUTPUTS}
        """The records of an output with a digest; of the other, dead letters, a `_Letter`."""
        self._compared: dict[str, set[Source]] = {field: set() for field in OUTPUTS}
        """Sources of records that were compared or reported as unexpected: another record is a duplicate."""

    def add(self, field: str, record: Record) -> None:
        """Add a record of an output topic, which is named by its field of `Topics`."""
        try:
            content = content_of(record.value)
            source = *source_in(content), *(str(content[name]) for name in TABLE[field].identity)
            kept = record if field in DIGESTED else _letter(record.key, content)
        except (ValueError, KeyError, TypeError):
            self.findings.add(record.topic, UNEXPECTED, f"{_position(record)}: no valid {_noun(field)}")
            return
        if source in self._records[field] or source in self._compared[field]:
            text = f"{_position(record)}: another {_noun(field)} for {_text(source)}"
            self.findings.add(record.topic, DUPLICATED, text)
            return
        self._records[field][source] = kept

    def compare(self, outcome: ExpectedOutcome) -> None:
        """Compare the output records that an outcome requires, and remove them from the index."""
        source = outcome.topic, outcome.partition, outcome.offset
        for field, expected in outcome.records:
            names = (str(expected[name]) for name in TABLE[field].identity)
            self._compare(field, (*source, *names), expected, outcome)
        if outcome.kind is Kind.DEAD_LETTER:
            self._compare_letter(source, outcome)

    def _compare(
        self, field: str, source: Source, expected: dict[str, Any], outcome: ExpectedOutcome
    ) -> None:
        topic, noun = getattr(self._topics, field), _noun(field)
        where = f"{_text(source)}: {topic}"
        missing = f"{where}: no {noun} for transaction {expected.get('transaction_id')}"
        if (record := self._take(field, source, missing)) is None:
            return
        actual = content_of(record.value)
        if "features" in expected:
            expected = with_features_of_its_release(expected, actual, outcome.looked_at)
        wrong = [
            f"{name}: {actual.get(name)!r} instead of {expected.get(name)!r}"
            for name in different_fields(expected, actual)
        ]
        wrong += [f"{name}: not rounded to the decimals of the contract" for name in unrounded_fields(actual)]
        if (release := release_of(record)) is None or actual.get("release") != release:
            wrong.append(f"release: {actual.get('release')!r}, and the record's header names {release!r}")
        key = str(expected[TABLE[field].key]).encode()
        if record.key != key:
            wrong.append(f"the record's key: {record.key!r} instead of {key!r}")
        if wrong:
            self.findings.add(topic, DIFFERENT, f"{where}: {noun} differs in {'; '.join(wrong)}")

    def _compare_letter(self, source: Source, outcome: ExpectedOutcome) -> None:
        assert outcome.reason is not None
        reason = outcome.reason.value
        letter = self._take("dead_letters", source, f"{_text(source)}: no dead letter {reason}")
        if letter is None:
            return
        wrong = letter.fault
        if letter.arrival != outcome.arrival:
            wrong = f"has the arrival {letter.arrival} instead of {outcome.arrival}"
        if letter.digest != outcome.digest:
            wrong = "has another key or value than the record"
        if letter.reason != reason:
            wrong = f"instead of {reason}"
        if wrong:
            text = f"{_text(source)}: dead letter {letter.reason} {wrong}"
            self.findings.add(self._topics.dead_letters, DIFFERENT, text)

    def _take(self, field: str, source: Source, missing: str) -> Any:
        """Remove the record of a source from the index; if there is none, report it and return None."""
        topic, record = getattr(self._topics, field), self._records[field].pop(source, None)
        if record is None:
            self.findings.add(topic, MISSING, missing)
        else:
            self._compared[field].add(source)
        return record

    def finish(self, ends: Mapping[PartitionId, int]) -> None:
        """Report the remaining records as unexpected, except those whose input is not audited yet.

        May be called repeatedly: each record is reported once.

        Args:
            ends: (topic, partition) of inputs -> first offset that is not audited; a partition without an
            entry is audited whole.
        """
        self._report(lambda source: _is_before(source, ends))

    def inputs(self) -> set[str]:
        """Return the topics that the remaining records are about."""
        return {source[0] for records in self._records.values() for source in records}

    def refuse_absent(self, ends: Mapping[PartitionId, int]) -> None:
        """Report the remaining records whose input does not exist as unexpected.

        Args:
            ends: (topic, partition) of inputs -> its end, looked up after the records were read.
        """
        self._report(lambda source: not _is_before(source, ends))

    def _report(self, is_unexpected: Callable[[Source], bool]) -> None:
        for field, records in self._records.items():
            topic = getattr(self._topics, field)
            for source in [source for source in records if is_unexpected(source)]:
                record = records.pop(source)
                where, reason = (
                    (f"{_position(record)}: ", "") if field in DIGESTED else ("", f" {record.reason}")
                )
                self._compared[field].add(source)
                text = f"{where}unexpected {_noun(field)}{reason} for {_text(source)}"
                self.findings.add(topic, UNEXPECTED, text)

    def drop_compared(self, ends: Mapping[PartitionId, int]) -> None:
        """Forget the compared records whose input is before these offsets; another one is then unexpected."""
        for field, sources in self._compared.items():
            self._compared[field] = {
                source for source in sources if source[2] >= ends.get((source[0], source[1]), 0)
            }


def _is_before(source: Source, ends: Mapping[PartitionId, int]) -> bool:
    return bool(source[2] < ends.get((source[0], source[1]), math.inf))


def _noun(field: str) -> str:
    """Return how texts name a record of an output."""
    return str(TABLE[field].contract).partition(".")[0].replace("-", " ")


class _Letter(NamedTuple):
    """What is compared of a dead letter."""

    reason: str
    digest: bytes
    """Of the input's key and value."""
    arrival: int
    """Of the input, ms."""
    fault: str
    """What is wrong with the letter whatever its input is; empty: nothing."""


def _letter(key: bytes | None, letter: dict[str, Any]) -> _Letter:
    reason, carried = str(letter["reason"]), letter["key_base64"]
    fault, of_input = "", None if carried is None else base64.b64decode(carried)
    if key != (None if of_input is None or len(of_input) > LONGEST_KEY else of_input):
        fault = f"has the Kafka key {key!r}, which is not the record's"
    # of other reasons the bytes are compared with the record's; these must not be there
    if reason == Reason.CARD_NUMBER.value and not (key is carried is letter["value_base64"] is None):
        fault = "shows the card number"
    arrival = int(letter["arrival_time"])
    return _Letter(reason, digest(_content(letter, "key"), _content(letter, "value")), arrival, fault)


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
