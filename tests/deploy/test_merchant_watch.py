"""The demo of compromised merchants: its archive, its labels, and its counts of frauds."""

from pathlib import Path

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest

from deploy.demo import compromise
from deploy.demo.merchant_watch import MerchantWatch
from feature_store.catalogue import DAY_MS, HOUR_MS
from loadtests.simulator.replay import Replay
from loadtests.simulator.timeline import Records, timeline
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.unit

TOPICS = Topics()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / compromise.FILE
    compromise.write(path, 0, 500, 100.0)
    return path


def records(archive: Path) -> list[Records]:
    batches = Replay(archive).batches()
    return list(timeline(batches, compromise.chargebacks(0), TOPICS, drain=False))


def test_merchants_are_compromised_for_days_and_labels_follow_days_later(archive: Path) -> None:
    table = pq.read_table(archive).to_pylist()
    frauds = [row for row in table if row["scenario"] == "compromised_merchant"]
    merchant = max((row["merchant_id"] for row in frauds), key=[r["merchant_id"] for r in frauds].count)
    arrivals = [row["arrival_time"] for row in frauds if row["merchant_id"] == merchant]
    assert len(arrivals) >= 20
    assert 5 * DAY_MS < max(arrivals) - min(arrivals) < 13 * DAY_MS
    arrived = {row["transaction_id"]: row["arrival_time"] for row in table}
    for piece in records(archive):
        if piece.topic == TOPICS.chargebacks:
            for at, value in zip(piece.at.tolist(), piece.values, strict=True):
                since = at - arrived[orjson.loads(value or b"")["transaction_id"]]
                assert DAY_MS - 2 * HOUR_MS < since < 3 * DAY_MS + 2 * HOUR_MS


def test_the_training_set_ends_where_the_archive_begins(archive: Path) -> None:
    transactions, labels = compromise.history(0, 500, 100.0)
    assert transactions["arrival_time"].to_numpy().max() < compromise.START_MS <= Replay(archive).first_ms
    assert max(labels["reported_at"].to_pylist()) <= compromise.START_MS
    again = compromise.history(0, 500, 100.0)
    assert again[0].equals(transactions)
    assert again[1].equals(labels)


def test_frauds_are_counted_before_and_after_the_first_label_takes_effect(archive: Path) -> None:
    lines: list[str] = []
    watch = MerchantWatch(archive, lines.append)
    pieces = records(archive)
    assert list(watch.feed(pieces, TOPICS)) == pieces
    table = pq.read_table(archive).to_pylist()
    frauds = {
        row["transaction_id"]: row
        for row in reversed(table)
        if row["scenario"] == "compromised_merchant" and row["merchant_id"] == watch.followed
    }
    reported = [
        at
        for piece in pieces
        if piece.topic == TOPICS.chargebacks
        for at, value in zip(piece.at.tolist(), piece.values, strict=True)
        if orjson.loads(value or b"")["transaction_id"] in frauds
    ]
    effect = (min(reported) // HOUR_MS + 2) * HOUR_MS
    before = [name for name, row in frauds.items() if row["arrival_time"] < effect]
    assert 0 < len(before) < len(frauds)
    assert not lines
    watch.advance(0)
    assert watch.report()["all"]["before"] == 0
    for name in (before[0], *(set(frauds) - set(before))):
        watch.see_alert({"transaction_id": name})
    watch.see_alert({"transaction_id": "somebody else's"})
    watch.advance(len(table))
    content = watch.report()["followed"]
    assert content["label_in_effect_at"] == effect
    assert (content["before"], content["alerted_before"]) == (len(before), 1)
    assert content["after"] == content["alerted_after"] == len(frauds) - len(before)
    assert watch.report()["all"]["before"] >= len(before)
    assert len(lines) == len({line[:29] for line in lines}) == 4
    assert lines == sorted(lines)
    at = np.datetime64(min(reported), "ms").astype("datetime64[m]").item()
    assert any(f"{at:%Y-%m-%d %H:%M} first label of a fraud at {watch.followed}" in line for line in lines)
