"""The oracle's features equal values computed by hand."""

import math

import pytest
from oracle_world import DAY, HOUR, MINUTE, SECOND, World

from feature_store.catalogue import NAMES
from loadtests.oracle.features import names

pytestmark = pytest.mark.unit


def everything() -> World:
    return World(threshold=0.0, max_count_5m=1000)


def test_oracle_defines_exactly_the_features_of_the_catalogue():
    assert names() == set(NAMES)


def test_window_holds_its_end_and_not_its_start():
    """The one-minute window (t - 60 s, t].

    time s   0        1        60       61
             a        b        c        d
                      (-----------------]  d: b is exactly 60 s old: out
             (-----------------]           c: a is exactly 60 s old: out
    """
    world = everything()
    for second, amount in ((0, 1.0), (1, 2.0), (60, 4.0), (61, 8.0)):
        world.tx(second * SECOND, amount)
    assert world.feature("count_1m") == [1, 2, 2, 2]
    assert world.feature("sum_1m") == [1, 3, 6, 12]
    assert world.feature("max_1m") == [1, 2, 4, 8]
    assert world.feature("mean_1m") == [1, 1.5, 3, 6]


def test_equal_event_times_see_those_accepted_before():
    world = everything()
    for amount in (1.0, 2.0, 4.0):
        world.tx(0, amount)
    assert world.feature("sum_1m") == [1, 3, 7]
    assert world.feature("time_since_previous") == [None, 0, 0]


def test_late_event_sees_its_own_past_and_is_seen_only_by_later_ones():
    """Arrival order a b late d; event order a late b d.

    event min   0     2       3     4
                a     late    b     d
    """
    world = everything()
    world.tx(0, 1.0)
    world.tx(3 * MINUTE, 2.0)
    world.tx(2 * MINUTE, 4.0, arrival=3 * MINUTE)
    world.tx(4 * MINUTE, 8.0)
    assert world.feature("sum_5m") == [1, 3, 5, 15]
    assert world.feature("count_5m") == [1, 2, 2, 4]
    assert [alert["late"] for alert in world.alerts()] == [False, False, True, False]
    # running values follow the order of acceptance
    assert world.feature("count_all") == [0, 1, 2, 3]


def test_windows_reach_from_a_minute_to_thirty_days():
    lengths = {"1m": MINUTE, "5m": 5 * MINUTE, "1h": HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}
    for name, length in lengths.items():
        world = everything()
        for time in (0, 0, length - 1, length):
            world.tx(time)
        assert world.feature(f"count_{name}") == [1, 2, 3, 2]


def test_distinct_merchants_and_countries():
    world = everything()
    for merchant, country in (("m", "FR"), ("n", "FR"), ("m", "DE"), ("m", "FR")):
        world.tx(0, merchant_id=merchant, country=country)
    assert world.feature("merchants_1h") == [1, 2, 2, 2]
    assert world.feature("countries_1h") == [1, 1, 2, 2]
    assert world.feature("new_merchant") == [1, 1, 0, 0]
    assert world.feature("new_country") == [1, 0, 1, 0]


def test_hour_night_weekend():
    world = everything()
    for time in (0, 3 * HOUR + 30 * MINUTE, 10 * HOUR + 29 * MINUTE + 59 * SECOND, 10 * HOUR + 30 * MINUTE):
        world.tx(time)  # Thursday 20:30, Friday 00:00, 06:59:59, 07:00
    world.tx(27 * HOUR + 30 * MINUTE)  # Saturday 00:00
    assert world.feature("hour_of_day") == [20, 0, 6, 7, 0]
    assert world.feature("is_night") == [0, 1, 1, 0, 1]
    assert world.feature("is_weekend") == [0, 0, 0, 0, 1]


def test_amounts_have_a_precision_of_a_ten_thousandth():
    world = everything()
    world.tx(0, 0.00004)
    world.tx(0, 0.00006)
    assert world.feature("amount") == [0, 0.0001]


def test_amount_tail_is_clipped_and_whole():
    world = everything()
    for amount in (3.0, 219.5, 220.5, 999.0):
        world.tx(0, amount)
    assert world.feature("amount_tail") == [150, 220, 220, 400]


def test_statistics_are_of_the_transactions_before():
    world = everything()
    for amount in (10.0, 20.0, 30.0):
        world.tx(0, amount)
    mean, deviation = 15.0, 5.0  # of 10 and 20
    assert world.feature("std_30d") == [None, 0, deviation]
    assert world.feature("ratio_mean_30d") == [None, 2, 30 / mean]
    assert world.feature("zscore_30d") == [None, None, (30 - mean) / deviation]
    assert world.feature("zscore_all") == [None, None, pytest.approx((30 - mean) / deviation, rel=1e-12)]


def test_median_is_the_lower_one_of_up_to_fifteen():
    world = everything()
    for amount in (0.0, 1.0, 3.0, 6.0, *[2.0] * 7, *[4.0] * 8):
        world.tx(0, amount)
    ratios = world.feature("ratio_median")
    assert ratios[:4] == [None, None, None, 6.0]  # medians: 0; 0 of {0, 1}; 1 of {0, 1, 3}
    assert ratios[-1] == 1.0  # median: 4 of {6, 7 times 2, 7 times 4}; with the 3 before it would be 3


def test_robust_mean_is_pulled_by_at_most_three_times_itself():
    world = everything()
    for amount in (0.0, 10.0, 100.0, 10.0):
        world.tx(0, amount)
    # the robust mean starts as 10; 100, the third amount, counts as 3 * 10 = 30: 10 + (30 - 10) / 3
    moved = 10 + 20 / 3
    assert world.feature("ratio_robust") == [None, None, 10, 10 / moved]


def test_spikes_are_more_than_two_and_a_half_robust_means():
    """event h   0      1      2      2.5    26
    amount  10     25     44     10     10
    spike          no     yes    no     no
    """
    world = everything()
    for hour, amount in ((0, 10.0), (1, 25.0), (2, 44.0), (2.5, 10.0), (26, 10.0)):
        world.tx(int(hour * HOUR), amount)
    # robust mean before 44: 10 + (25 - 10) / 2 = 17.5; 44 / 17.5 > 2.5
    assert world.feature("spikes_1h") == [0, 0, 0, 1, 0]
    assert world.feature("spikes_24h") == [0, 0, 0, 1, 0]
    assert world.feature("spikes_7d") == [0, 0, 0, 1, 1]
    assert world.feature("spikes_30d") == [0, 0, 0, 1, 1]
    assert world.feature("time_since_spike") == [None, None, None, 1800, 24 * 3600]


def test_travel_speed_between_countries():
    world = everything()
    world.tx(0, country="FR")
    world.tx(HOUR, country="FR")
    world.tx(2 * HOUR, country="US")
    world.tx(3 * HOUR, country="ZZ")
    world.tx(4 * HOUR, country="ZZ")
    world.tx(5 * HOUR, country="FR")
    world.tx(6 * HOUR, country="QQ")  # ZZ is the unknown country, QQ a code that no country has
    speeds = world.feature("travel_speed")
    assert speeds[:2] == [None, 0]
    assert 6_500 < speeds[2] < 9_000  # km from France to the middle of the United States, in one hour
    assert speeds[3:] == [None, None, None, None]


def test_profile_features():
    world = everything()
    world.profile("r", arrival=0, credit_limit=500.0, risk_tier=2, opened_on=20_600)
    world.tx(0, 100.0, country="DE")
    world.tx(MINUTE, 100.0, country="FR")
    world.tx(MINUTE, 100.0, card_id="stranger")
    assert world.feature("has_profile") == [1, 1, 0]
    assert world.feature("limit_use_24h") == [0.2, 0.4, None]
    assert world.feature("risk_tier") == [2, 2, None]
    assert world.feature("away_from_home") == [1, 0, None]
    assert world.feature("account_age") == [1, 1, None]  # 2026-05-28 is day 20,601


def test_running_deviation_equals_the_exact_one():
    world = everything()
    amounts = [7.31, 19.99, 0.5, 240.0, 19.99, 33.33, 8.25]
    for amount in amounts:
        world.tx(0, amount)
    before = amounts[:-1]
    mean = math.fsum(before) / len(before)
    deviation = math.sqrt(math.fsum((a - mean) ** 2 for a in before) / len(before))
    assert world.feature("zscore_all")[-1] == pytest.approx((8.25 - mean) / deviation, rel=1e-12)
