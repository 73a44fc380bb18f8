"""How far an archive is, exported before the archiver has heard of the brokers, for the alerts over it."""

import time
from pathlib import Path

import pytest
from harness.archives import batch, write

from feature_store.archive.storage import Storage
from streaming_job.archive.metrics import ArchiveMetrics, listed_until_s

pytestmark = pytest.mark.unit
NOON_MS = 1_760_000_000_000


def test_before_the_first_report_the_newest_listed_arrival_is_exported(tmp_path: Path) -> None:
    newest = {field: NOON_MS + shift for field, shift in (("fraud_alerts", 7_000), ("dead_letters", 9_000))}
    write(
        tmp_path,
        {field: {0: [batch([(0, arrival, b"k", b"v")])], 1: []} for field, arrival in newest.items()},
    )
    metrics = ArchiveMetrics(listed_until_s(Storage(str(tmp_path))))
    exported = metrics.registry.get_sample_value("fraud_archive_timestamp_seconds")
    assert exported == (NOON_MS + 9_000) / 1000


def test_an_archive_that_begins_is_as_old_as_its_archiver(tmp_path: Path) -> None:
    before = time.time()
    assert before <= listed_until_s(Storage(str(tmp_path / "new"))) <= time.time()
    write(tmp_path / "empty", {"fraud_alerts": {0: []}})
    assert before <= listed_until_s(Storage(str(tmp_path / "empty"))) <= time.time()
