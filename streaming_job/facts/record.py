"""The record of a merchant fact: contract merchant-fact.v1.

Counts are packed: one record for an arrival hour of a key group, or several if it had very many merchants. A
report is one label of one transaction. A promise says that all facts of the group that take effect before a
time stand before it in the log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.errors import FraudError
from feature_store.merchants.facts import HOUR_COUNT, REPORT
from streaming_job.log.records import Records

MERCHANTS = 10_000
"""Merchants of a record at most: 200 kB."""
VERSION = 1


class FactError(FraudError):
    """The topic of merchant facts holds what no job of this release has written."""


@dataclass(frozen=True)
class Author:
    """Who writes facts."""

    job_id: str
    """Facts of other jobs on the topic are left alone."""
    key_group: int

    def counts(self, counts: NDArray[np.void]) -> list[bytes]:
        """Records of HOUR_COUNT, of which one merchant and hour stands once."""
        made = []
        for hour in np.unique(counts["hour"]).tolist():
            here = counts[counts["hour"] == hour]
            for start in range(0, here.size, MERCHANTS):
                part = here[start : start + MERCHANTS]
                columns = {"merchants": part["merchant"].tolist(), "counts": part["count"].tolist()}
                made.append(self._record("counts", hour=hour, **columns))
        return made

    def report(self, report: np.void, source: dict[str, Any]) -> bytes:
        """A record of one REPORT.

        Args:
            report: what is said.
            source: topic, partition and offset of the label that says it.
        """
        fields = dict(zip(report.dtype.names or (), report.item(), strict=True))
        return self._record("report", **fields, source=source)

    def promise(self, until: int) -> bytes:
        """A record of a promise: all facts that take effect before `until`, ms, are written."""
        return self._record("promise", until=until)

    def _record(self, kind: str, **fields: Any) -> bytes:
        who = {"schema_version": VERSION, "job_id": self.job_id, "key_group": self.key_group}
        return orjson.dumps({**who, "kind": kind, **fields})


@dataclass(frozen=True)
class Told:
    """What records of the topic say."""

    counts: NDArray[np.void]
    """HOUR_COUNT."""
    reports: NDArray[np.void]
    """REPORT, in the order of the log."""
    promises: dict[int, int]
    """By key group, its greatest promise."""


def read(records: Records, job_id: str) -> Told:
    """Read records of the topic, in the order of the log.

    Raises:
        FactError: a record is none that this release or an earlier one writes.
    """
    counts, reports, promises = [], [], dict[int, int]()
    for place, told in _of_job(records, job_id):
        try:
            match told["kind"]:
                case "counts":
                    found = np.empty(len(told["merchants"]), dtype=HOUR_COUNT)
                    found["merchant"], found["count"] = told["merchants"], told["counts"]
                    found["hour"] = told["hour"]
                    counts.append(found)
                case "report":
                    reports.append(tuple(told[name] for name in REPORT.names or ()))
                case "promise":
                    group, until = int(told["key_group"]), int(told["until"])
                    promises[group] = max(until, promises.get(group, until))
                case other:
                    raise FactError(
                        f"{place} is a merchant fact of unknown kind {other!r}; run the newer release"
                    )
        except (LookupError, TypeError, ValueError, OverflowError) as fault:
            raise _alien(place) from fault
    return Told(_joined(counts), np.array(reports, dtype=REPORT), promises)


def _of_job(records: Records, job_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for partition, offset, value in zip(
        records.partitions.tolist(), records.offsets.tolist(), records.values.to_pylist(), strict=True
    ):
        place = f"{records.topic}-{partition}@{offset}"
        try:
            told = orjson.loads(value or b"")
        except orjson.JSONDecodeError as fault:
            raise _alien(place) from fault
        if not isinstance(told, dict):
            raise _alien(place)
        if told.get("job_id") == job_id:
            yield place, told


def _alien(place: str) -> FactError:
    return FactError(
        f"{place} is no merchant fact: see who writes to the topic; use another topic and a new job id"
    )


def _joined(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=HOUR_COUNT)
