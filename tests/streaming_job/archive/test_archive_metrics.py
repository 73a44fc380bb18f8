"""How far an archive is, exported before the archiver has heard of the brokers; and what expires of it."""

import time
from pathlib import Path

import pytest
from harness.archives import batch, write
from typer.testing import CliRunner

from feature_store.archive.layout import day_of
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS
from streaming_job.archive.commands import app
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


def test_a_record_of_the_future_that_keeps_files_from_expiring_is_named(tmp_path: Path) -> None:
    future_ms = int(time.time() * 1000) + 400 * DAY_MS
    arrivals = [NOON_MS, future_ms, NOON_MS]
    rows = [(number, arrival, b"k", b"v") for number, arrival in enumerate(arrivals)]
    write(tmp_path, {"fraud_alerts": {0: [batch(rows)], 1: [batch(rows[:1])]}})
    done = CliRunner().invoke(app, ["expire", str(tmp_path), "--older-than", "1"])
    assert done.exit_code == 0
    assert f"fraud_alerts-0: nothing is deleted from offset 1 on before {day_of(future_ms)}" in done.output
    assert "fraud_alerts-1" not in done.output
