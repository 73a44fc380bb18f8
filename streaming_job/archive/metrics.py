"""Prometheus metrics of a running archiver, on their own port."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from streaming_job.archive.archiver import Report
from streaming_job.metric_families import counter, gauge

# fmt: off
FAMILIES = (
    counter("fraud_archive_records", "records read since the archiver's start"),
    gauge("fraud_archive_unread_offsets", "offsets of the archived topics that are not read yet"),
    gauge("fraud_archive_unlisted_offsets", "offsets that are read, but that the archive does not list yet"),
    gauge("fraud_archive_timestamp_seconds", "the archive lists all records that had arrived by then; until "
          "the first tails after a start, the newest arrival that it lists"),
)
# fmt: on


class ArchiveMetrics:
    """Metrics of an archiver, as of its newest report."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        records, unread, unlisted, until = ((family.name, family.meaning) for family in FAMILIES)
        self._records = Counter(*records, registry=self.registry)
        self._unread = Gauge(*unread, registry=self.registry)
        self._unlisted = Gauge(*unlisted, registry=self.registry)
        self._until = Gauge(*until, registry=self.registry)
        self._exported = 0

    def export(self, report: Report) -> None:
        """Export a report."""
        self._records.inc(report.records - self._exported)
        self._exported = report.records
        self._unread.set(report.unread)
        self._unlisted.set(report.unlisted)
        self._until.set(report.listed_until_s)
