"""The records of merchant facts (contract merchant-fact.v1).

Counts are packed: a record holds those of one arrival hour of a key group, for up to MERCHANTS merchants. A
report is one label of one transaction. A promise states that all facts of the group that take effect before a
time precede the promise in the log.

A record that no key group can have written is foreign, and is skipped: by its bytes, so that all groups skip
the same records. A new kind of fact therefore needs a new version: a job stops at facts of a newer version
of its own, because it would break their promises without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.errors import FraudError
from feature_store.layout import joined
from feature_store.merchants.facts import REPORT
from feature_store.merchants.hours import HOUR_COUNT
from streaming_job.log.records import Records

MERCHANTS = 10_000
"""Maximum number of merchants in a record, which then has 200 kB."""
VERSION = 1
_INT32 = range(-(2**31), 2**31)
_POSITIVE = range(1, 2**31)
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_REPORT = {
    name: bool if dtype == np.bool_ else _UINT64 if dtype.kind == "u" else _INT64
    for name, (dtype, *_) in (REPORT.fields or {}).items()
}
"""Field of a report -> bool, or the range of its integers."""


class FactError(FraudError):
    """A newer release wrote facts of this job, without which promises of its key groups could not be kept.

    Run the release that wrote them.
    """


class _ForeignError(Exception):
    """No key group of the job wrote the record."""


@dataclass(frozen=True)
class Author:
    """The author of facts: a key group of a job."""

    job_id: str
    """Id of the job; facts of other jobs on the topic are ignored."""
    key_group: int

    def counts(self, counts: NDArray[np.void]) -> list[bytes]:
        """Encode counts (HOUR_COUNT), with at most one row for each merchant and hour, as records."""
        encoded = []
        for hour in np.unique(counts["hour"]).tolist():
            hour_rows = counts[counts["hour"] == hour]
            for start in range(0, hour_rows.size, MERCHANTS):
                part = hour_rows[start : start + MERCHANTS]
                columns = {"merchants": part["merchant"].tolist(), "counts": part["count"].tolist()}
                encoded.append(self._record("counts", hour=hour, **columns))
        return encoded

    def report(self, report: np.void, source: dict[str, Any]) -> bytes:
        """Encode one REPORT as a record.

        Args:
            source: topic, partition and offset of its label.
        """
        fields = dict(zip(report.dtype.names or (), report.item(), strict=True))
        return self._record("report", **fields, source=source)

    def promise(self, until: int) -> bytes:
        """Encode a promise as a record: all facts that take effect before `until`, ms, are written."""
        return self._record("promise", until=until)

    def _record(self, kind: str, **fields: Any) -> bytes:
        head = {"schema_version": VERSION, "job_id": self.job_id, "key_group": self.key_group}
        return orjson.dumps({**head, "kind": kind, **fields})


@dataclass(frozen=True)
class FactBatch:
    """The decoded facts of some records."""

    counts: NDArray[np.void]
    """Counts (HOUR_COUNT)."""
    reports: NDArray[np.void]
    """Reports (REPORT), in the order of the log."""
    promises: dict[int, int]
    """Greatest promise by key group."""
    foreign: tuple[tuple[int, int], ...] = ()
    """Partition and offset of each record that no job wrote."""


def read(records: Records, job_id: str, key_groups: int) -> FactBatch:
    """Decode records of the topic, in the order of the log; facts of other jobs are ignored.

    Raises:
        FactError: a newer release of the job wrote a record.
    """
    counts, reports, promises = [], [], dict[int, int]()
    foreign = []
    for partition, offset, key, value in zip(
        records.partitions.tolist(),
        records.offsets.tolist(),
        records.keys.to_pylist(),
        records.values.to_pylist(),
        strict=True,
    ):
        try:
            fact = _fact(key, value, job_id, key_groups)
            if fact is None:
                continue
            if fact["schema_version"] > VERSION:
                raise FactError(
                    f"{records.topic}-{partition}@{offset} is a merchant fact of version "
                    f"{fact['schema_version']}; run the release that wrote it"
                )
            match fact.get("kind"):
                case "counts":
                    counts.append(_counts(fact))
                case "report":
                    reports.append(tuple(_checked(fact, name, kind) for name, kind in _REPORT.items()))
                case "promise":
                    group, until = fact["key_group"], _checked(fact, "until", _INT64)
                    promises[group] = max(until, promises.get(group, until))
                case _:
                    raise _ForeignError
        except _ForeignError:
            foreign.append((partition, offset))
    return FactBatch(_joined(counts), np.array(reports, dtype=REPORT), promises, tuple(foreign))


def _fact(key: bytes | None, value: bytes | None, job_id: str, key_groups: int) -> dict[str, Any] | None:
    """Parse a record of a key group of the job; None if another job wrote it."""
    try:
        fact = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        raise _ForeignError from None
    if not isinstance(fact, dict) or not isinstance(fact.get("job_id"), str):
        raise _ForeignError
    if fact["job_id"] != job_id:
        return None
    if key != b"%d" % _checked(fact, "key_group", range(key_groups)):
        raise _ForeignError
    _checked(fact, "schema_version", range(VERSION, 2**31))
    return fact


def _counts(fact: dict[str, Any]) -> NDArray[np.void]:
    merchants, counts = fact.get("merchants"), fact.get("counts")
    if not isinstance(merchants, list) or not isinstance(counts, list) or len(merchants) != len(counts):
        raise _ForeignError
    for numbers, allowed in ((merchants, _UINT64), (counts, _POSITIVE)):
        if not _are_all(numbers, allowed):
            raise _ForeignError
    hour_counts = np.empty(len(merchants), dtype=HOUR_COUNT)
    hour_counts["merchant"], hour_counts["count"] = merchants, counts
    hour_counts["hour"] = _checked(fact, "hour", _INT32)
    return hour_counts


def _are_all(numbers: list[Any], allowed: range) -> bool:
    """Return whether all are integers of a range; fast, because a record has up to MERCHANTS of them."""
    if not numbers:
        return True
    return set(map(type, numbers)) == {int} and min(numbers) in allowed and max(numbers) in allowed


def _checked(fact: dict[str, Any], name: str, kind: Any) -> Any:
    """Return a field that is a bool, or an integer of a range."""
    value = fact.get(name)
    if type(value) is bool and kind is bool:
        return value
    if type(value) is not int or kind is bool or value not in kind:
        raise _ForeignError
    return value


def _joined(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    return joined(parts) if parts else np.zeros(0, dtype=HOUR_COUNT)
