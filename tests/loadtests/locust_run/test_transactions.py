import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadtests.locust_run import identity, tape, tape_writer
from loadtests.locust_run.plan import LoadTestPlan, Share
from loadtests.locust_run.transactions import encoded, events_of, rates

pytestmark = pytest.mark.unit
BASE = 1_780_000_000_000
PLAN = LoadTestPlan(rate=5_000.0, for_s=4.0, warm_up_s=1.0, cards=500)


def rows(plan: LoadTestPlan, share: Share) -> list[tuple[int, bytes, dict[str, object]]]:
    table = pa.concat_tables(encoded(plan, share, BASE))
    columns = (table.column(name).to_pylist() for name in table.column_names)
    return [(due, key, json.loads(value)) for due, key, value in zip(*columns, strict=True)]


@pytest.mark.parametrize("lanes", [1, 3])
def test_every_event_of_the_schedule_is_encoded_once_with_its_due_time(lanes: int) -> None:
    result = []
    for lane in range(lanes):
        share = Share(77, lane, lanes)
        mine = rows(PLAN, share)
        assert len(mine) == events_of(PLAN, share)
        for number, (due, key, value) in enumerate(mine):
            assert identity.decode(str(value["transaction_id"]), identity.prefix(share)) == (number, due)
            assert value["card_id"] == key.decode()
            assert value["event_time"] == BASE + due // 1_000
        result += mine
    assert len(result) == rates(PLAN).events
    assert len({value["transaction_id"] for _, _, value in result}) == len(result)


def test_identifiers_of_other_producers_are_ignored() -> None:
    share = Share(77, 0, 2)
    mine = identity.prefix(share)
    for other in ("", "0" * 32, identity.prefix(Share(77, 1, 2)) + "0" * 24, mine + "x" * 24, mine):
        assert identity.decode(other, mine) is None


def test_a_replay_keeps_its_spacing_divided_by_the_speed(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    at = [1_700_000_000_000 + 250 * row for row in range(100)]
    columns = {
        "transaction_id": [f"t{row}" for row in range(100)], "card_id": [f"c{row % 7}" for row in range(100)],
        "merchant_id": ["m"] * 100, "amount": [10.5] * 100, "currency": ["EUR"] * 100,
        "country": ["FR"] * 100, "event_time": at,
    }  # fmt: skip
    pq.write_table(pa.table(columns), path)
    plan = LoadTestPlan(shape="replay", replay=str(path), speed=5.0, for_s=3.0, warm_up_s=1.0)
    both = sorted(rows(plan, Share(1, 0, 2)) + rows(plan, Share(1, 1, 2)), key=lambda row: row[0])
    # 50 ms apart, for the four seconds of the run
    assert [due for due, _, _ in both] == [50_000 * row for row in range(80)]
    assert [key.decode() for _, key, _ in both] == [f"c{row % 7}" for row in range(80)]
    assert [value["event_time"] for _, _, value in both] == [BASE + 50 * row for row in range(80)]


def test_a_tape_returns_what_was_written_and_is_deleted(tmp_path: Path) -> None:
    share = Share(5, 0, 1)
    tape_writer.write(tmp_path, encoded(PLAN, share, BASE))
    result = tape.Tape(tmp_path, "transactions")
    assert result.is_ready()
    assert result.events() == events_of(PLAN, share)
    due, keys = [], []
    for segment in result.segments(lambda: False):
        due += (segment.at * 1_000).round().astype(int).tolist()
        keys += segment.columns(0, len(segment))[1]
        assert segment.topic == "transactions"
    assert list(zip(due, keys, strict=True)) == [(due, key) for due, key, _ in rows(PLAN, share)]
    assert not list(tmp_path.glob("*.arrow"))


def test_a_tape_without_its_next_piece_ends_at_the_deadline(tmp_path: Path) -> None:
    asked = iter([True, True, False])
    assert list(tape.Tape(tmp_path, "transactions").segments(lambda: next(asked))) == []
    assert next(asked, None) is None
