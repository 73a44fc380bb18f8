"""A second, naive implementation of all features but the merchant label features (see merchants.py).

Small functions of a card's history and profile: slices, sums and sorts over plain lists. No arithmetic is
shared with the kernels.
Amounts are integers (1/10,000 of the currency unit), so sums are exact. Unknown values are NaN.
"""

import math
from collections.abc import Callable, Sequence

from loadtests.oracle.card import ARRIVAL_WINDOWS, DAY_MS, HOUR_MS, WINDOWS
from loadtests.oracle.geography import kilometres
from loadtests.oracle.hot import Window
from loadtests.oracle.records import UNITS
from loadtests.oracle.view import View

WEEK_MS = 7 * DAY_MS
UNKNOWN = math.nan
LIMIT_USE = "limit_use_24h"
"""The only feature that is computed from one of the window features (`sum_24h`)."""
NOWHERE = "ZZ"
"""Country code of transactions and profiles without a country."""

Definition = Callable[[View], float]
OfWindow = Callable[[Window], float]

DEFINITIONS: dict[str, Definition] = {}
"""Feature name -> function that computes it for a transaction."""
PER_WINDOW: dict[str, OfWindow] = {}
"""Stem of feature names -> function that computes the feature `<stem>_<window>` for any window."""


def names() -> set[str]:
    """Return the names of all features that `compute` returns."""
    return {LIMIT_USE, *DEFINITIONS} | {f"{stem}_{window}" for stem in PER_WINDOW for window in WINDOWS}


def compute(view: View) -> dict[str, float]:
    """Compute a transaction's features, except the merchant label features, by name; NaN where unknown."""
    values = {name: float(definition(view)) for name, definition in DEFINITIONS.items()}
    values |= {name: float(value) for name, value in view.hot_features.items()}
    for name in WINDOWS:
        window = view.window(name)
        for stem, of_window in PER_WINDOW.items():
            values[f"{stem}_{name}"] = float(of_window(window))
    limit = 0.0 if view.profile is None else view.profile.credit_limit
    values[LIMIT_USE] = values["sum_24h"] / limit if limit else UNKNOWN
    return values


def feature(name: str) -> Callable[[Definition], Definition]:
    """Decorate the function that computes one feature."""

    def register(definition: Definition) -> Definition:
        DEFINITIONS[name] = definition
        return definition

    return register


def per_window(stem: str) -> Callable[[OfWindow], OfWindow]:
    """Decorate a function that computes `<stem>_<window>` for every window."""

    def register(of_window: OfWindow) -> OfWindow:
        PER_WINDOW[stem] = of_window
        return of_window

    return register


@feature("amount")
def _amount(view: View) -> float:
    return view.tx.units / UNITS


@feature("amount_tail")
def _amount_tail(view: View) -> float:
    return min(max(round(view.tx.units / UNITS), 150), 400)


@feature("hour_of_day")
def _hour_of_day(view: View) -> float:
    return view.tx.event_time // HOUR_MS % 24


@feature("is_night")
def _is_night(view: View) -> float:
    return _hour_of_day(view) < 7


@feature("is_weekend")
def _is_weekend(view: View) -> float:
    # 1970-01-01 was a Thursday
    return (view.tx.event_time // DAY_MS + 3) % 7 >= 5


@feature("lateness")
def _lateness(view: View) -> float:
    return (view.tx.arrival - view.tx.event_time) / 1000


def _arrived_within(view: View, window: str) -> float:
    after = view.arrival - ARRIVAL_WINDOWS[window]
    return 1 + sum(arrival > after for arrival in view.arrivals)


@feature("arrivals_1m")
def _arrivals_1m(view: View) -> float:
    return _arrived_within(view, "1m")


@feature("arrivals_5m")
def _arrivals_5m(view: View) -> float:
    return _arrived_within(view, "5m")


@feature("arrivals_1h")
def _arrivals_1h(view: View) -> float:
    return _arrived_within(view, "1h")


@per_window("count")
def _count(window: Window) -> float:
    return window.transactions


@per_window("sum")
def _sum(window: Window) -> float:
    return window.total / UNITS


@per_window("mean")
def _mean(window: Window) -> float:
    return window.total / window.transactions / UNITS


@per_window("max")
def _max(window: Window) -> float:
    return window.greatest / UNITS


@per_window("merchants")
def _merchants(window: Window) -> float:
    return window.merchants


@per_window("countries")
def _countries(window: Window) -> float:
    return window.countries


@feature("time_since_previous")
def _time_since_previous(view: View) -> float:
    times = view.month.times
    return (view.tx.event_time - times[-1]) / 1000 if times else UNKNOWN


@feature("count_all")
def _count_all(view: View) -> float:
    return view.card.count - 1


@feature("zscore_all")
def _zscore_all(view: View) -> float:
    if _count_all(view) < 2 or not view.deviation:
        return UNKNOWN
    return (_amount(view) - view.mean) / view.deviation


def _mean_and_deviation(amounts: Sequence[int]) -> tuple[float, float]:
    mean = sum(amounts) / len(amounts)
    squares = 0.0
    for amount in amounts:
        squares += (amount - mean) * (amount - mean)
    return mean, math.sqrt(squares / len(amounts))


@feature("std_30d")
def _std_30d(view: View) -> float:
    return _mean_and_deviation(view.month.units)[1] / UNITS if view.month.units else UNKNOWN


@feature("ratio_mean_30d")
def _ratio_mean_30d(view: View) -> float:
    amounts = view.month.units
    return view.tx.units / (sum(amounts) / len(amounts)) if any(amounts) else UNKNOWN


@feature("zscore_30d")
def _zscore_30d(view: View) -> float:
    if len(view.month.units) < 2:
        return UNKNOWN
    mean, deviation = _mean_and_deviation(view.month.units)
    return (view.tx.units - mean) / deviation if deviation else UNKNOWN


@feature("ratio_robust")
def _ratio_robust(view: View) -> float:
    return _amount(view) / view.robust_mean if view.robust_mean else UNKNOWN


@feature("ratio_median")
def _ratio_median(view: View) -> float:
    latest = sorted(view.month.units[-15:])
    if not latest:
        return UNKNOWN
    median = latest[(len(latest) - 1) // 2]
    return view.tx.units / median if median else UNKNOWN


def _spikes_since(view: View, length_ms: int) -> float:
    if True not in view.month.spikes:
        return 0
    since = view.tx.event_time - length_ms
    return sum(spike for time, spike in zip(view.month.times, view.month.spikes, strict=True) if time > since)


@feature("spikes_1h")
def _spikes_1h(view: View) -> float:
    return _spikes_since(view, HOUR_MS)


@feature("spikes_24h")
def _spikes_24h(view: View) -> float:
    return _spikes_since(view, DAY_MS)


@feature("spikes_7d")
def _spikes_7d(view: View) -> float:
    return _spikes_since(view, WEEK_MS)


@feature("spikes_30d")
def _spikes_30d(view: View) -> float:
    return sum(view.month.spikes)


@feature("time_since_spike")
def _time_since_spike(view: View) -> float:
    if True not in view.month.spikes:
        return UNKNOWN
    latest = max(time for time, spike in zip(view.month.times, view.month.spikes, strict=True) if spike)
    return (view.tx.event_time - latest) / 1000


@feature("new_merchant")
def _new_merchant(view: View) -> float:
    return view.tx.merchant_id not in view.month.merchants


@feature("new_country")
def _new_country(view: View) -> float:
    return view.tx.country not in view.month.countries


@feature("travel_speed")
def _travel_speed(view: View) -> float:
    if not view.month.times:
        return UNKNOWN
    hours = max(view.tx.event_time - view.month.times[-1], 1000) / HOUR_MS
    return kilometres(view.month.countries[-1], view.tx.country) / hours


@feature("has_profile")
def _has_profile(view: View) -> float:
    return view.profile is not None


@feature("account_age")
def _account_age(view: View) -> float:
    return UNKNOWN if view.profile is None else view.tx.event_time // DAY_MS - view.profile.opened_on


@feature("risk_tier")
def _risk_tier(view: View) -> float:
    return UNKNOWN if view.profile is None else view.profile.risk_tier


@feature("away_from_home")
def _away_from_home(view: View) -> float:
    if view.profile is None or NOWHERE in (view.tx.country, view.profile.home_country):
        return UNKNOWN
    return view.tx.country != view.profile.home_country
