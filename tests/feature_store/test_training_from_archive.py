"""Training from an archive equals training from files, and folds profiles as the stream does."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import archives, raw_records
from typer.testing import CliRunner

from deploy import cli
from feature_store.archive import commit, file_writer, layout
from feature_store.archive.manifest import Kind
from feature_store.archive.storage import Storage
from feature_store.layout import PROFILE
from feature_store.training.archived import files_of, present, read_labels, read_profiles
from feature_store.training.transaction_files import TransactionFiles
from feature_store.training.transaction_table import profile_records
from loadtests.simulator.encode import encode
from models.evaluation.report import digest
from streaming_job.archive.contract_columns import decoder
from streaming_job.decode import profiles, snapshots
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Records

pytestmark = pytest.mark.unit
NOW = raw_records.NOW
TOPICS = ("transactions", "profiles", "labels", "chargebacks")
ROW = {
    "card_id": "c-1", "status": "active", "home_country": "DE", "currency": "EUR", "credit_limit": 1234.5,
    "risk_tier": 2, "opened_on": 19_000,
}  # fmt: skip


def archive(place: Path, **topics: Sequence[Sequence[archives.Row]]) -> Path:
    """An archive whose topics have the given records, partition by partition; others are empty."""
    archives.write(
        place,
        {
            field: {
                number: [archives.batch(rows)] if rows else []
                for number, rows in enumerate(topics.get(field, [[]]))
            }
            for field in TOPICS
        },
        {field: decoder(field) for field in TOPICS},
    )
    return place


def change(op: str, card: str = "c-1", snapshot: str = "false", **columns: Any) -> tuple[bytes, bytes]:
    row = {**ROW, "card_id": card, **columns}
    envelope = {
        "op": op, "before": row if op == "d" else None, "after": None if op == "d" else row,
        "source": {"lsn": 7, "ts_ms": NOW, "snapshot": snapshot},
    }  # fmt: skip
    return json.dumps({"card_id": card}).encode(), json.dumps(envelope).encode()


def test_profiles_are_the_changes_that_the_stream_folds(tmp_path: Path) -> None:
    contents = [
        change("r"),
        change("r", "c-2", snapshot="last", status="blocked"),
        change("r", "c-3"),
        change("u", "c-2", credit_limit="much"),
        change("u", "c-1", home_country="nowhere", risk_tier=9, opened_on=None),
        change("u", "c-1", status="unknown"),
        (b"{", b"["),
        change("d", "c-2"),
        (b'{"card_id": "c-2"}', None),
        change("r", "c-1", snapshot="incremental", credit_limit=5),
    ]
    rows = [(offset, NOW + offset, key, value) for offset, (key, value) in enumerate(contents)]
    place = archive(tmp_path, profiles=[rows])
    changes = profile_records(read_profiles(place))
    log = Records(
        "profiles",
        np.zeros(len(rows), dtype=np.int32),
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]),
        pa.array([row[2] for row in rows], pa.binary()),
        pa.array([row[3] for row in rows], pa.binary()),
    )
    expected = profiles.decode(log, KeyGroups(Partitioner.MURMUR2, 1, 1), 0)
    snapshots.mark_later_rows(expected.changes, expected.snapshot_end)
    assert len(changes) == 8
    for name in PROFILE.names:
        np.testing.assert_array_equal(changes[name], expected.changes[name], err_msg=name)


def test_labels_are_both_topics_in_order_of_arrival(tmp_path: Path) -> None:
    def label(transaction: str, **fields: Any) -> bytes:
        base = {"schema_version": 1, "transaction_id": transaction, "card_id": "c-1", "source": "s"}
        return json.dumps({**base, "occurred_at": 1, "maturity": "final", **fields}).encode()

    reported = {
        "transaction_id": "t-2", "card_id": "c-1", "merchant_id": "m", "event_time": 1, "reported_at": 2,
        "label": "fraud",
    }  # fmt: skip
    rows = [
        (0, NOW + 5, b"c-1", label("t-1", kind="early_warning")),
        (1, NOW + 6, b"c-1", label("t-1", kind="refund")),
        (2, NOW + 7, b"other", label("t-1", kind="reversal")),
        (3, NOW + 8, b"c-1", label("t-1", kind="reversal")),
        (4, NOW + 9, b"c-1", b"{"),
    ]
    place = archive(
        tmp_path, labels=[rows], chargebacks=[[(0, NOW + 6, b"c-1", json.dumps(reported).encode())]]
    )
    table = read_labels(place).select(["transaction_id", "label", "reported_at"])
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("t-1", "fraud", NOW + 5), ("t-2", "fraud", NOW + 6), ("t-1", "genuine", NOW + 8),
    ]  # fmt: skip
    assert read_labels(archive(tmp_path / "none")).num_rows == 0


def test_features_of_an_archive_are_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With records that do not decode among them, in small row groups, in two partitions."""
    monkeypatch.setattr(file_writer, "GROUP_ROWS", 7)
    rng = np.random.default_rng(5)
    n = 200
    table = pa.table(
        {
            "transaction_id": [f"t-{number}" for number in range(n)],
            "card_id": [f"c-{number % 5}" for number in range(n)],
            "merchant_id": [f"m-{number % 3}" for number in range(n)],
            "amount": np.round(rng.uniform(1, 900, n), 2),
            "currency": ["EUR"] * n,
            "country": [("DE", "FR")[number % 2] for number in range(n)],
            "event_time": NOW + np.arange(n) * 60_000 - rng.integers(0, 600_000, n),
            "arrival_time": NOW + np.arange(n) * 60_000,
        }
    )
    pq.write_table(table, tmp_path / "tx.parquet")
    values = encode(table)
    arrivals, cards = table["arrival_time"].to_pylist(), table["card_id"].to_pylist()
    partitions: list[list[archives.Row]] = [[], []]
    for number, value in enumerate(values):
        partition = partitions[number % 5 // 3]
        if number % 11 == 0:
            partition.append((len(partition), arrivals[number], b"c-1", b"broken"))
        partition.append((len(partition), arrivals[number], cards[number].encode(), value))
    place = archive(tmp_path / "archive", transactions=partitions)
    files = TransactionFiles(place)
    assert files.rows == n
    assert sum(len(batch) for _, batch in files.batches(3)) == n
    assert [first for first, _ in files.batches(3)] == list(
        np.cumsum([0, *(len(batch) for _, batch in files.batches(3))])[:-1]
    )
    results = []
    for source in (place, tmp_path / "tx.parquet"):
        output = tmp_path / f"{source.stem}-features.parquet"
        done = CliRunner().invoke(
            cli.app, ["features", "--transactions", str(source), "--output", str(output)]
        )
        assert done.exit_code == 0, done.output
        results.append(pq.read_table(output).drop_columns("row").sort_by("transaction_id"))
    assert results[0].num_rows == n
    for name in results[0].column_names:
        np.testing.assert_array_equal(results[0][name].to_numpy(), results[1][name].to_numpy(), err_msg=name)


def test_a_tail_that_an_archiver_replaces_is_read_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "GROUP_ROWS", 4)
    monkeypatch.setattr(layout, "RANGE", 16)

    def rows(first: int, end: int) -> list[archives.Row]:
        values = [
            b"broken" if number == 3 else raw_records.record(transaction_id=f"t-{number}")
            for number in range(first, end)
        ]
        return [(number, NOW + number, b"c-1", value) for number, value in enumerate(values, first)]

    place = archive(tmp_path, transactions=[rows(0, 10), rows(4, 7)])
    files, paths = TransactionFiles(place), files_of(place, "transactions")
    expected, arrivals = files.table(), files.arrivals()
    assert files.rows == 9 + 3
    for end in (12, 20):  # a longer tail, then a file and a tail
        storage = Storage(str(place))
        writer = archives.partition_writer(storage, "transactions", 0, 0, decoder("transactions"))
        for each in [*writer.add(archives.batch(rows(0, end))), writer.finish(Kind.TAIL)]:
            assert each is not None
            commit.commit(storage, "transactions", 0, each, lambda _: None)
        assert files.table().equals(expected)
        np.testing.assert_array_equal(files.arrivals(), arrivals)
        assert TransactionFiles(place).rows == end - 1 + 3
        assert digest(paths) == digest([present(path)[0] for path in paths])
