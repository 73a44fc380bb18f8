"""Prometheus metrics of a running archiver, on their own port."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge

from feature_store.archive import commit
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from streaming_job.archive.archiver import Report
from streaming_job.metric_families import counter, gauge

# fmt: off
FAMILIES = (
    counter("fraud_archive_records", "records read since the archiver's start"),
    gauge("fraud_archive_unread_offsets", "offsets of the archived topics that are not read yet"),
    gauge("fraud_archive_unlisted_offsets", "offsets that are read, but that the archive does not list yet"),
    gauge("fraud_archive_timestamp_seconds", "the archive lists all records that had arrived by then; until "
          "the first tails after a start, the newest arrival that it lists; of an empty archive, the start"),
)
# fmt: on


def listed_until_s(storage: Storage) -> float:
    """Return the newest arrival that an archive lists, seconds since 1970-01-01 UTC; without records, now."""
    if not commit.names_of(storage):
        return time.time()
    archived = Archive(storage.place)
    newest_ms = max(
        (
            span.most_ms
            for field in archived.topics
            for partition in archived.partitions(field)
            for span in archived.manifest(field, partition).files()
        ),
        default=0,
    )
    return newest_ms / 1000 or time.time()


class ArchiveMetrics:
    """Metrics of an archiver, as of its newest report.

    Args:
        until_s: `fraud_archive_timestamp_seconds` before the first report, which may not come for minutes, or
            never: while brokers do not answer.
    """

    def __init__(self, until_s: float) -> None:
        self.registry = CollectorRegistry()
        records, unread, unlisted, until = ((family.name, family.meaning) for family in FAMILIES)
        self._records = Counter(*records, registry=self.registry)
        self._unread = Gauge(*unread, registry=self.registry)
        self._unlisted = Gauge(*unlisted, registry=self.registry)
        self._until = Gauge(*until, registry=self.registry)
        self._until.set(until_s)
        self._exported = 0

    def export(self, report: Report) -> None:
        """Export a report."""
        self._records.inc(report.records - self._exported)
        self._exported = report.records
        self._unread.set(report.unread)
        self._unlisted.set(report.unlisted)
        self._until.set(report.listed_until_s)
