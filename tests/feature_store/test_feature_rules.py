"""The rules of features and repetitions, with values computed by hand: for the kernels and for the oracle.

Each test runs on each implementation; on the kernels also with the state rebuilt again and again.
"""

import math
from collections.abc import Callable

import pytest
from harness.log_world import DAY, HOUR, MINUTE, SECOND
from histories import History, Judged, judge, replay

from feature_store.catalogue import COLUMN, NAMES
from loadtests.oracle.features import names

pytestmark = pytest.mark.unit

Decide = Callable[[History], Judged]


def rebuilt(history: History) -> Judged:
    """Outcomes by the kernels in up to 40 batches, after each of which the state is rebuilt."""
    count = len(history.transactions)
    return replay(history, range(0, count, 1 + count // 40), rebuild_after=lambda batch: True)


class Transactions(History):
    """A history that is decided by one of the implementations."""

    def __init__(self, decide: Decide) -> None:
        super().__init__()
        self._decide = decide

    def pay(self, time: int, amount: float = 10.0, **fields: object) -> None:
        """Append a transaction; see `History.tx`."""
        self.tx(time, round(amount * 10_000), **fields)  # type: ignore[arg-type]

    @property
    def outcomes(self) -> Judged:
        return self._decide(self)

    def feature(self, name: str) -> list[float | None]:
        """Value of a feature for each transaction; None if unknown."""
        values = self.outcomes.features[:, COLUMN[name]].tolist()
        return [None if math.isnan(value) else value for value in values]


@pytest.fixture(params=[replay, rebuilt, judge], ids=["kernels", "kernels rebuilt", "oracle"])
def log(request: pytest.FixtureRequest) -> Transactions:
    return Transactions(request.param)


def test_oracle_defines_exactly_the_features_of_the_catalogue():
    assert names() == set(NAMES)


def test_window_holds_its_end_and_not_its_start(log):
    """The one-minute window (t - 60 s, t].

    time s   0        1        60       61
             a        b        c        d
                      (-----------------]  d: b is exactly 60 s old: out
             (-----------------]           c: a is exactly 60 s old: out
    """
    for second, amount in ((0, 1.0), (1, 2.0), (60, 4.0), (61, 8.0)):
        log.pay(second * SECOND, amount)
    assert log.feature("count_1m") == [1, 2, 2, 2]
    assert log.feature("sum_1m") == [1, 3, 6, 12]
    assert log.feature("max_1m") == [1, 2, 4, 8]
    assert log.feature("mean_1m") == [1, 1.5, 3, 6]


def test_equal_event_times_see_those_accepted_before(log):
    for amount in (1.0, 2.0, 4.0):
        log.pay(0, amount)
    assert log.feature("sum_1m") == [1, 3, 7]
    assert log.feature("time_since_previous") == [None, 0, 0]


def test_late_event_sees_its_own_past_and_is_seen_only_by_later_ones(log):
    """Arrival order a b late d; event order a late b d.

    event min   0     2       3     4
                a     late    b     d
    """
    log.pay(0, 1.0)
    log.pay(3 * MINUTE, 2.0)
    log.pay(2 * MINUTE, 4.0, arrival=3 * MINUTE)
    log.pay(4 * MINUTE, 8.0)
    assert log.feature("sum_5m") == [1, 3, 5, 15]
    assert log.feature("count_5m") == [1, 2, 2, 4]
    assert log.outcomes.late.tolist() == [False, False, True, False]
    # running values follow the order of acceptance
    assert log.feature("count_all") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("window", "length"),
    [("1m", MINUTE), ("5m", 5 * MINUTE), ("1h", HOUR), ("24h", DAY), ("7d", 7 * DAY), ("30d", 30 * DAY)],
)
def test_windows_reach_from_a_minute_to_thirty_days(log, window, length):
    for time in (0, 0, length - 1, length):
        log.pay(time)
    assert log.feature(f"count_{window}") == [1, 2, 3, 2]


def test_distinct_merchants_and_countries(log):
    for merchant, country in (("m", "FR"), ("n", "FR"), ("m", "DE"), ("m", "FR")):
        log.pay(0, merchant=merchant, country=country)
    assert log.feature("merchants_1h") == [1, 2, 2, 2]
    assert log.feature("countries_1h") == [1, 1, 2, 2]
    assert log.feature("new_merchant") == [1, 1, 0, 0]
    assert log.feature("new_country") == [1, 0, 1, 0]


def test_hour_night_weekend(log):
    for time in (0, 3 * HOUR + 30 * MINUTE, 10 * HOUR + 29 * MINUTE + 59 * SECOND, 10 * HOUR + 30 * MINUTE):
        log.pay(time)  # Thursday 20:30, Friday 00:00, 06:59:59, 07:00
    log.pay(27 * HOUR + 30 * MINUTE)  # Saturday 00:00
    assert log.feature("hour_of_day") == [20, 0, 6, 7, 0]
    assert log.feature("is_night") == [0, 1, 1, 0, 1]
    assert log.feature("is_weekend") == [0, 0, 0, 0, 1]


def test_amount_tail_is_clipped_and_whole(log):
    for amount in (3.0, 219.5, 220.5, 999.0):
        log.pay(0, amount)
    assert log.feature("amount_tail") == [150, 220, 220, 400]


def test_statistics_are_of_the_transactions_before(log):
    for amount in (10.0, 20.0, 30.0):
        log.pay(0, amount)
    mean, deviation = 15.0, 5.0  # of 10 and 20
    assert log.feature("std_30d") == [None, 0, deviation]
    assert log.feature("ratio_mean_30d") == [None, 2, 30 / mean]
    assert log.feature("zscore_30d") == [None, None, (30 - mean) / deviation]
    assert log.feature("zscore_all") == [None, None, pytest.approx((30 - mean) / deviation, rel=1e-12)]


def test_median_is_the_lower_one_of_up_to_fifteen(log):
    for amount in (0.0, 1.0, 3.0, 6.0, *[2.0] * 7, *[4.0] * 8):
        log.pay(0, amount)
    ratios = log.feature("ratio_median")
    assert ratios[:4] == [None, None, None, 6.0]  # medians: 0; 0 of {0, 1}; 1 of {0, 1, 3}
    assert ratios[-1] == 1.0  # median: 4 of {6, 7 times 2, 7 times 4}; with the 3 before it would be 3


def test_robust_mean_is_pulled_by_at_most_three_times_itself(log):
    for amount in (0.0, 10.0, 100.0, 10.0):
        log.pay(0, amount)
    # the robust mean starts as 10; 100, the third amount, counts as 3 * 10 = 30: 10 + (30 - 10) / 3
    moved = 10 + 20 / 3
    assert log.feature("ratio_robust") == [None, None, 10, 10 / moved]


def test_spikes_are_more_than_two_and_a_half_robust_means(log):
    """event h   0      1      2      2.5    26
    amount  10     25     44     10     10
    spike          no     yes    no     no
    """
    for hour, amount in ((0, 10.0), (1, 25.0), (2, 44.0), (2.5, 10.0), (26, 10.0)):
        log.pay(int(hour * HOUR), amount)
    # robust mean before 44: 10 + (25 - 10) / 2 = 17.5; 44 / 17.5 > 2.5
    assert log.feature("spikes_1h") == [0, 0, 0, 1, 0]
    assert log.feature("spikes_24h") == [0, 0, 0, 1, 0]
    assert log.feature("spikes_7d") == [0, 0, 0, 1, 1]
    assert log.feature("spikes_30d") == [0, 0, 0, 1, 1]
    assert log.feature("time_since_spike") == [None, None, None, 1800, 24 * 3600]


def test_travel_speed_between_countries(log):
    log.pay(0, country="FR")
    log.pay(HOUR, country="FR")
    log.pay(2 * HOUR, country="US")
    log.pay(3 * HOUR, country="ZZ")
    log.pay(4 * HOUR, country="ZZ")
    log.pay(5 * HOUR, country="FR")
    log.pay(6 * HOUR, country="QQ")  # ZZ is the unknown country, QQ a code that no country has
    speeds = log.feature("travel_speed")
    assert speeds[:2] == [None, 0]
    assert 6_500 < speeds[2] < 9_000  # km from France to the middle of the United States, in one hour
    assert speeds[3:] == [None, None, None, None]


def test_profile_features(log):
    log.profile("r", 0, credit_limit=500.0, risk_tier=2, opened_on=20_600)
    log.pay(0, 100.0, country="DE")
    log.pay(MINUTE, 100.0, country="FR")
    log.pay(MINUTE, 100.0, card="stranger")
    assert log.feature("has_profile") == [1, 1, 0]
    assert log.feature("limit_use_24h") == [0.2, 0.4, None]
    assert log.feature("risk_tier") == [2, 2, None]
    assert log.feature("away_from_home") == [1, 0, None]
    assert log.feature("account_age") == [1, 1, None]  # 2026-05-28 is day 20,601


def test_running_deviation_equals_the_exact_one(log):
    amounts = [7.31, 19.99, 0.5, 240.0, 19.99, 33.33, 8.25]
    for amount in amounts:
        log.pay(0, amount)
    before = amounts[:-1]
    mean = math.fsum(before) / len(before)
    deviation = math.sqrt(math.fsum((a - mean) ** 2 for a in before) / len(before))
    assert log.feature("zscore_all")[-1] == pytest.approx((8.25 - mean) / deviation, rel=1e-12)


@pytest.mark.parametrize(
    ("again_after", "is_duplicate"),
    [(0, True), (7 * DAY, True), (7 * DAY + HOUR, True), (7 * DAY + HOUR + 1, False), (80 * DAY, False)],
)
def test_repetition_is_recognised_for_the_allowed_lateness_and_an_hour(log, again_after, is_duplicate):
    log.tx(0)
    log.again(log.transactions[0], again_after)
    outcomes = log.outcomes
    assert outcomes.duplicate.tolist() == [False, is_duplicate]
    assert not outcomes.conflicting.any()


@pytest.mark.parametrize(("ahead", "is_duplicate"), [(HOUR, True), (HOUR + 1, False)])
def test_a_clock_that_was_ahead_ends_the_time_in_which_repetitions_are_recognised(log, ahead, is_duplicate):
    """t0 ---- t1, which arrives by a clock that is ahead ---- t0 again, 7 d after the first."""
    log.tx(0)
    log.tx(7 * DAY + ahead)
    log.again(log.transactions[0], 7 * DAY)
    assert log.outcomes.duplicate.tolist() == [False, False, is_duplicate]


def test_an_id_with_other_content_is_recognised_for_the_allowed_lateness_and_an_hour(log):
    for time in (0, 7 * DAY + HOUR, 14 * DAY + 2 * HOUR + 1):
        log.tx(time, transaction_id="t0")
    assert log.outcomes.conflicting.tolist() == [False, True, False]


def test_windows_of_a_card_are_exact_up_to_511_other_transactions(log):
    for step in range(520):
        log.tx(step * SECOND // 5)
    counts = log.feature("count_1m")
    assert counts[300:512] == [300] * 212
    # beyond 511 others, the window is whole buckets of a second: that of the transaction and the 59 before it
    assert counts[512:] == [298, 299, 300, 296, 297, 298, 299, 300]


def test_a_hot_card_recognises_repetitions_among_the_last_thousand(log):
    for step in range(2_100):
        log.tx(step)
    for number in (2_090, 10):
        log.again(log.transactions[number], 2_100)
    log.tx(2_100, transaction_id="t2091")
    outcomes = log.outcomes
    assert outcomes.duplicate[-3:].tolist() == [True, False, False]
    assert outcomes.conflicting[-2:].tolist() == [False, True]


def test_a_hot_card_that_was_forgotten_is_exact_again(log):
    for step in range(600):
        log.tx(step)
    log.pay(91 * DAY, 7.0)
    log.pay(92 * DAY - 1, 1.0)  # whole buckets would miss the other: they begin after it
    assert log.feature("sum_24h")[-2:] == [7, 8]
    assert log.feature("count_all")[-2:] == [0, 1]


def test_arrival_window_holds_its_end_and_not_its_start(log):
    """The 5-minute window (t - 5 min, t] by arrival t, whatever the event times.

    arrival      0      1 ms       5 min
                 a      b          c        c counts b and itself; a is exactly 5 min old: out
    """
    for event_time, arrival in ((-DAY, 0), (-2 * DAY, 1), (-3 * DAY, 5 * MINUTE)):
        log.tx(event_time, arrival=arrival)
    assert log.feature("arrivals_5m") == [1, 2, 2]
    assert log.feature("arrivals_1m") == [1, 2, 1]


def test_lateness_is_below_zero_where_the_senders_clock_is_ahead(log):
    log.tx(1500, arrival=0)
    log.tx(0, arrival=2500)
    assert log.feature("lateness") == [-1.5, 2.5]


@pytest.mark.parametrize(("pause", "seen_before"), [(90 * DAY, 1), (90 * DAY + 1, 0)])
def test_card_starts_afresh_after_90_days_of_silence(log, pause, seen_before):
    log.tx(0, 2_000_000)
    log.tx(0, 2_000_000)
    log.tx(pause, 2_000_000)
    assert log.feature("count_all") == [0, 1, 2 * seen_before]
    assert log.outcomes.suspicious == [(1, 1), (2, 2), (1, 1 + 2 * seen_before)]


@pytest.mark.parametrize(("pause", "seen_before"), [(8 * DAY, 1), (8 * DAY + 1, 0)])
def test_stranger_starts_afresh_after_8_days_of_silence(log, pause, seen_before):
    log.tx(0, 2_000_000)
    log.tx(pause, 2_000_000)
    assert log.feature("count_all") == [0, seen_before]
    assert log.outcomes.suspicious == [(1, 1), (1, 1 + seen_before)]


@pytest.mark.parametrize("op", ["c", "d", "tombstone"])
@pytest.mark.parametrize(("at", "seen_before"), [(0, 1), (8 * DAY, 1), (8 * DAY + 1, 0), (10 * DAY, 0)])
def test_profile_makes_a_card_known_if_it_arrives_within_the_8_days(log, op, at, seen_before):
    """tx at 0 ---- a change of the profile, even its deletion ---- tx after 10 days."""
    log.profile("c", 0, card="another")
    log.profile(op, at)
    log.tx(0)
    log.tx(10 * DAY)
    assert log.feature("count_all") == [0, seen_before]


def test_a_repetition_of_a_strangers_transaction_is_always_recognised(log):
    """Dated five minutes ahead, the greatest skew; repeated at the end of the allowed lateness."""
    log.tx(5 * MINUTE, arrival=0)
    log.again(log.transactions[0], 7 * DAY + 5 * MINUTE)
    assert log.outcomes.duplicate.tolist() == [False, True]


def test_profile_survives_the_silence(log):
    log.profile("c", 0, risk_tier=3)
    log.tx(0)
    log.tx(200 * DAY)
    assert log.feature("risk_tier") == [3, 3]


def test_cards_do_not_see_each_other(log):
    for second in range(20):
        log.tx(second * SECOND, card=f"card{second % 4}", transaction_id=f"x{second // 4}")
    result = log.outcomes
    assert not result.duplicate.any()
    assert result.features[-4:, COLUMN["count_1m"]].tolist() == [5, 5, 5, 5]
