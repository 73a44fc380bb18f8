"""How long a record has waited if its timestamp, from an archive, does not show it."""

import pytest

from service.health.waiting import MOST, Waiting

pytestmark = pytest.mark.unit
PLACE = ("transactions", 0)


def test_a_record_waits_since_the_partition_was_seen_to_hold_it() -> None:
    """seen at    1 s   2 s   3 s
    end           10    10    25
    """
    waiting = Waiting()
    for now, end in ((1.0, 10), (2.0, 10), (3.0, 25)):
        waiting.see(PLACE, 0, end, now)
    assert [waiting.since_ms(PLACE, offset) for offset in (0, 9, 10, 24)] == [1_000, 1_000, 3_000, 3_000]


def test_processed_records_are_dropped() -> None:
    waiting = Waiting()
    for number in range(1, 1_000):
        waiting.see(PLACE, number - 1, number, float(number))
    assert waiting.since_ms(PLACE, 998) == 999_000
    assert len(waiting.ends[PLACE]) == 1


def test_a_backlog_of_days_takes_bounded_memory() -> None:
    waiting = Waiting()
    for number in range(1, 4 * MOST):
        waiting.see(PLACE, 0, 10 * number, float(number))
    assert len(waiting.ends[PLACE]) <= MOST
    assert waiting.since_ms(PLACE, 0) == 1_000
    exact = 10 * MOST
    assert MOST < waiting.since_ms(PLACE, exact) / 1000 <= MOST + 64  # exact to 64 s after six thinnings
