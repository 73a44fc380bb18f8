"""Which key group a card is of, and where Spark puts the group."""

import numpy as np
import pyarrow as pa
import pytest

from feature_store.layout import TRANSACTION
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.decode.transactions import TimeLimits
from streaming_job.progress.outcome import PIECE, Alert, Outcome
from streaming_job.packets import DeadLetter, Packet, RolloutRecord, _spark_hash, group_of, grouping_values
from streaming_job.log.records import Records
from streaming_job.source.stage import MOST_WHOLE, SourceStage

pytestmark = pytest.mark.unit


# SELECT hash(0), hash(1), ... in Spark 4.2.0
@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 933211791), (1, -559580957), (42, 29417773), (-1, -1604776387), (2147483647, 133916647)],
)
def test_hash_is_sparks(value, expected):
    assert _spark_hash(value) == expected


@pytest.mark.parametrize("groups", [1, 2, 3, 7, 12, 48, 200, 1000])
def test_every_group_has_a_partition_of_its_own(groups):
    values = grouping_values(groups)
    assert [_spark_hash(value) % groups for value in values] == list(range(groups))
    assert all(0 <= value < 1 << 31 for value in values)


@pytest.mark.parametrize("groups", [1, 2, 7])
def test_groups_share_the_cards_evenly(groups):
    hashes = np.random.default_rng(0).integers(0, 2**64, 10_000, dtype=np.uint64)
    counts = np.bincount(group_of(hashes, groups), minlength=groups)
    assert counts.size == groups
    assert counts.min() > 0.9 * 10_000 / groups


def test_packet_travels_whole():
    letter = DeadLetter("t", 1, 2, 3, None, b"\xff", Reason.INVALID_UTF8, "why")
    sent = Packet(
        np.ones(2, dtype=TRANSACTION), pa.array([b"a", b"b"]),
        rollouts=[RolloutRecord(1, 2, b"x")], dead_letters=[letter],
    )  # fmt: skip
    found = Packet.unpack(sent.pack())
    assert found.transactions.tobytes() == sent.transactions.tobytes()
    assert found.quotes.to_pylist() == [b"a", b"b"]
    assert found.changes.size == 0
    assert (found.rollouts, found.dead_letters) == (sent.rollouts, [letter])


def test_a_flood_of_broken_records_stays_in_the_log():
    n, size = 5_000, 1_000
    stage = SourceStage(Topics(), 2, TimeLimits(lateness_ms=1, skew_ms=1))
    values = [bytes([row % 251]) * size for row in range(n)]
    records = Records(
        Topics().transactions, 3, np.arange(n), np.ones(n, dtype=np.int64),
        pa.array([b"key"] * n, pa.binary()), pa.array(values, pa.binary()),
    )  # fmt: skip
    (packet,) = stage.decode(records).values()
    assert len(packet.pack()) < 2 * MOST_WHOLE
    letters = packet.dead_letters
    whole = MOST_WHOLE // (size + len(b"key"))
    assert [letter.is_whole for letter in letters] == [True] * whole + [False] * (n - whole)
    assert [letter.offset for letter in letters] == list(range(n))
    assert [letter.value for letter in letters] == values[:whole] + [None] * (n - whole)
    assert {letter.key for letter in letters[whole:]} == {None}


def test_a_large_outcome_travels_in_pieces():
    rng = np.random.default_rng(0)
    sent = Outcome()
    sent.alerts = [Alert(0, row, b"card", rng.bytes(3_000)) for row in range(1_000)]
    pieces = sent.pack()
    assert len(pieces) > 2
    assert max(map(len, pieces)) == PIECE
    assert Outcome.unpack(pieces).alerts == sent.alerts
    assert len(Outcome().pack()) == 1
