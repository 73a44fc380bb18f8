"""The input of a comparison."""

import numpy as np
import orjson
import pytest

from loadtests.compare.tape import LoadProfile, record
from loadtests.simulator.world import World

pytestmark = pytest.mark.unit
LOAD = LoadProfile(prime=300, backlog=700, rate=50.0, warm_up_s=4.0, for_s=6.0, kill_s=2.0)
START = 1_790_000_000_000


def test_tape_is_the_same_whenever_it_is_recorded() -> None:
    tapes = [record(World.create(1, 200), LOAD, START) for _ in range(2)]
    assert tapes[0].values == tapes[1].values
    assert tapes[0].keys == tapes[1].keys
    assert np.array_equal(tapes[0].arrivals, tapes[1].arrivals)


def test_the_live_part_has_its_length_and_follows_the_backlog() -> None:
    tape = record(World.create(1, 200), LOAD, START)
    assert len(tape) == len(tape.values) == len(tape.arrivals) == 300 + 700 + 500 + 100
    assert (tape.live_from, tape.kill_from) == (1_000, 1_500)
    assert (np.diff(tape.arrivals) >= 0).all()
    assert tape.live_start_ms - START == pytest.approx(1_000 / LOAD.rate * 1_000, rel=0.1)
    assert tape.arrivals[tape.kill_from] - tape.live_start_ms == pytest.approx(LOAD.live_s * 1_000, rel=0.1)


def test_records_have_cards_as_keys_and_some_are_repeated() -> None:
    tape = record(World.create(1, 200), LOAD, START)
    rows = [orjson.loads(value or b"") for value in tape.values]
    assert [row["card_id"].encode() for row in rows] == list(tape.keys)
    assert 0 < len(rows) - len({row["transaction_id"] for row in rows}) < 40
