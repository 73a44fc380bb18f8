"""The records of merchant facts (contract merchant-fact.v1).

Counts are packed: a record holds those of one arrival hour of a key group, for up to MERCHANTS merchants. A
report is one label of one transaction. A promise states that all facts of the group that take effect before a
time precede the promise in the log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.errors import FraudError
from feature_store.merchants.facts import REPORT
from feature_store.merchants.hours import HOUR_COUNT
from streaming_job.log.records import Records

MERCHANTS = 10_000
"""Maximum number of merchants in a record, which then has 200 kB."""
VERSION = 1


class FactError(FraudError):
    """The topic of merchant facts contains a record that no job of this release or an earlier one wrote."""


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
            report: the report.
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


def read(records: Records, job_id: str) -> FactBatch:
    """Decode records of the topic, in the order of the log.

    Raises:
        FactError: a record was not written by this release or an earlier one.
    """
    counts, reports, promises = [], [], dict[int, int]()
    for position, fact in _of_job(records, job_id):
        try:
            match fact["kind"]:
                case "counts":
                    hour_counts = np.empty(len(fact["merchants"]), dtype=HOUR_COUNT)
                    hour_counts["merchant"], hour_counts["count"] = fact["merchants"], fact["counts"]
                    hour_counts["hour"] = fact["hour"]
                    counts.append(hour_counts)
                case "report":
                    reports.append(tuple(fact[name] for name in REPORT.names or ()))
                case "promise":
                    group, until = int(fact["key_group"]), int(fact["until"])
                    promises[group] = max(until, promises.get(group, until))
                case other:
                    raise FactError(
                        f"{position} is a merchant fact of unknown kind {other!r}; "
                        "run the release that wrote it"
                    )
        except (LookupError, TypeError, ValueError, OverflowError) as fault:
            raise _foreign_record(position) from fault
    return FactBatch(_joined(counts), np.array(reports, dtype=REPORT), promises)


def _of_job(records: Records, job_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for partition, offset, value in zip(
        records.partitions.tolist(), records.offsets.tolist(), records.values.to_pylist(), strict=True
    ):
        position = f"{records.topic}-{partition}@{offset}"
        try:
            fact = orjson.loads(value or b"")
        except orjson.JSONDecodeError as fault:
            raise _foreign_record(position) from fault
        if not isinstance(fact, dict):
            raise _foreign_record(position)
        if fact.get("job_id") == job_id:
            yield position, fact


def _foreign_record(position: str) -> FactError:
    return FactError(
        f"{position} is no merchant fact: find out who writes to the topic; use another topic and job id"
    )


def _joined(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=HOUR_COUNT)
