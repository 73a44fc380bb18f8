"""Every feature of docs/features.md except merchant label features, for one transaction, in plain Python.

A card's history, as Quix stores it, is a dict of the numbers `count`, `mean`, `squares` (the sum of squared
deviations from `mean`), `robust_mean` and `arrival` (the greatest so far), and of parallel lists sorted by
event time: `times`, `units`, `arrivals`, `merchants`, `ids`, `countries`, `currencies` and `spikes`. A
transaction is a dict of the fields of the transaction contract, `units` (amount in 1/10,000) and `arrival`.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

UNITS = 10_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WINDOWS = (
    ("1m", 60_000), ("5m", 300_000), ("1h", HOUR_MS), ("24h", DAY_MS), ("7d", 7 * DAY_MS),
    ("30d", 30 * DAY_MS),
)  # fmt: skip
MONTH_MS = 30 * DAY_MS
REMEMBER_MS = 37 * DAY_MS
REPEAT_MS = 7 * DAY_MS + HOUR_MS
NOWHERE = "ZZ"
COLUMNS = ("times", "units", "arrivals", "merchants", "ids", "countries", "currencies", "spikes")

Row = dict[str, Any]


def new_card() -> Row:
    """Return the history of a card without transactions."""
    return {
        "count": 0, "mean": 0.0, "squares": 0.0, "robust_mean": 0.0, "arrival": -1,
        **{column: [] for column in COLUMNS},
    }  # fmt: skip


def is_repetition(card: Row, tx: Row) -> bool:
    """Return whether id and content are those of an accepted transaction that is at most REPEAT_MS old."""
    known_from = max(card["arrival"], tx["arrival"]) - REPEAT_MS
    for index in range(bisect_left(card["times"], known_from), len(card["times"])):
        if (
            card["ids"][index] == tx["transaction_id"]
            and card["times"][index] == tx["event_time"]
            and card["units"][index] == tx["units"]
            and card["merchants"][index] == tx["merchant_id"]
            and card["countries"][index] == tx["country"]
            and card["currencies"][index] == tx["currency"]
        ):
            return True
    return False


def accept(card: Row, tx: Row) -> None:
    """Add a transaction to the history."""
    card["arrival"] = arrival = max(card["arrival"], tx["arrival"])
    expired = bisect_left(card["times"], arrival - REMEMBER_MS)
    if expired:
        for column in COLUMNS:
            del card[column][:expired]
    amount, robust = tx["units"] / UNITS, card["robust_mean"]
    index = bisect_right(card["times"], tx["event_time"])
    card["times"].insert(index, tx["event_time"])
    card["units"].insert(index, tx["units"])
    card["arrivals"].insert(index, arrival)
    card["merchants"].insert(index, tx["merchant_id"])
    card["ids"].insert(index, tx["transaction_id"])
    card["countries"].insert(index, tx["country"])
    card["currencies"].insert(index, tx["currency"])
    card["spikes"].insert(index, robust > 0 and amount / robust > 2.5)
    card["count"] += 1
    difference = amount - card["mean"]
    card["mean"] += difference / card["count"]
    card["squares"] += difference * (amount - card["mean"])
    if robust == 0:
        card["robust_mean"] = amount
    else:
        card["robust_mean"] = robust + (min(amount, 3 * robust) - robust) / min(card["count"], 64)


def compute(
    card: Row, tx: Row, profile: Row | None, centroids: Mapping[str, list[float]]
) -> dict[str, float]:
    """Compute features by name, NaN where unknown; the transaction is not yet in the history."""
    now, amount, times = tx["event_time"], tx["units"] / UNITS, card["times"]
    start, end = bisect_right(times, now - MONTH_MS), bisect_right(times, now)
    hour = now // HOUR_MS % 24
    values: dict[str, float] = {
        "amount": amount,
        "amount_tail": min(max(round(amount), 150), 400),
        "hour_of_day": hour,
        "is_night": hour < 7,
        "is_weekend": (now // DAY_MS + 3) % 7 >= 5,
        "lateness": (tx["arrival"] - now) / 1000,
        "time_since_previous": (now - times[end - 1]) / 1000 if start < end else math.nan,
        "count_all": card["count"],
    }
    deviation = math.sqrt(card["squares"] / max(card["count"], 1))
    is_known = card["count"] >= 2 and deviation
    values["zscore_all"] = (amount - card["mean"]) / deviation if is_known else math.nan
    robust = card["robust_mean"]
    values["ratio_robust"] = amount / robust if robust else math.nan
    _windows(values, card, tx, start, end)
    _arrivals(values, card, tx)
    _month(values, tx, card["units"][start:end])
    _spikes(values, card, now, start, end)
    values["new_merchant"] = tx["merchant_id"] not in card["merchants"][start:end]
    values["new_country"] = tx["country"] not in card["countries"][start:end]
    values["travel_speed"] = math.nan
    if start < end:
        hours = max(now - times[end - 1], 1000) / HOUR_MS
        values["travel_speed"] = _kilometres(card["countries"][end - 1], tx["country"], centroids) / hours
    _of_profile(values, tx, profile)
    return values


def _windows(values: dict[str, float], card: Row, tx: Row, start: int, end: int) -> None:
    times, units, merchants, countries = card["times"], card["units"], card["merchants"], card["countries"]
    count, total, most, now = 1, tx["units"], tx["units"], tx["event_time"]
    at_merchants, in_countries = {tx["merchant_id"]}, {tx["country"]}
    index = end - 1
    for name, length in WINDOWS:
        since = now - length
        while index >= start and times[index] > since:
            amount = units[index]
            count += 1
            total += amount
            if amount > most:
                most = amount
            at_merchants.add(merchants[index])
            in_countries.add(countries[index])
            index -= 1
        values["count_" + name] = count
        values["sum_" + name] = total / UNITS
        values["mean_" + name] = total / count / UNITS
        values["max_" + name] = most / UNITS
        values["merchants_" + name] = len(at_merchants)
        values["countries_" + name] = len(in_countries)


def _arrivals(values: dict[str, float], card: Row, tx: Row) -> None:
    now = max(card["arrival"], tx["arrival"])
    arrivals = card["arrivals"][bisect_left(card["times"], now - REPEAT_MS) :]
    for name, length in WINDOWS[:3]:
        since = now - length
        values["arrivals_" + name] = 1 + sum(arrival > since for arrival in arrivals)


def _month(values: dict[str, float], tx: Row, units: list[int]) -> None:
    values["std_30d"] = values["ratio_mean_30d"] = values["zscore_30d"] = values["ratio_median"] = math.nan
    if not units:
        return
    total, squares = sum(units), 0.0
    mean = total / len(units)
    for amount in units:
        squares += (amount - mean) * (amount - mean)
    deviation = math.sqrt(squares / len(units))
    values["std_30d"] = deviation / UNITS
    if total:
        values["ratio_mean_30d"] = tx["units"] / mean
    if len(units) >= 2 and deviation:
        values["zscore_30d"] = (tx["units"] - mean) / deviation
    latest = sorted(units[-15:])
    median = latest[(len(latest) - 1) // 2]
    if median:
        values["ratio_median"] = tx["units"] / median


def _spikes(values: dict[str, float], card: Row, now: int, start: int, end: int) -> None:
    spikes = [card["times"][index] for index in range(start, end) if card["spikes"][index]]
    values["spikes_1h"] = sum(time > now - HOUR_MS for time in spikes)
    values["spikes_24h"] = sum(time > now - DAY_MS for time in spikes)
    values["spikes_7d"] = sum(time > now - 7 * DAY_MS for time in spikes)
    values["spikes_30d"] = len(spikes)
    values["time_since_spike"] = (now - spikes[-1]) / 1000 if spikes else math.nan


def _kilometres(a: str, b: str, centroids: Mapping[str, list[float]]) -> float:
    if NOWHERE in (a, b):
        return math.nan
    if a == b:
        return 0.0
    if a not in centroids or b not in centroids:
        return math.nan
    (lat_a, lon_a), (lat_b, lon_b) = centroids[a], centroids[b]
    north, east = math.sin((lat_b - lat_a) / 2), math.sin((lon_b - lon_a) / 2)
    h = north * north + math.cos(lat_a) * math.cos(lat_b) * (east * east)
    return round(2 * 6371.0 * math.asin(min(1.0, math.sqrt(h))) * 1000) / 1000


def _of_profile(values: dict[str, float], tx: Row, profile: Row | None) -> None:
    values["has_profile"] = profile is not None
    values["limit_use_24h"] = values["account_age"] = values["risk_tier"] = values["away_from_home"] = (
        math.nan
    )
    if profile is None:
        return
    if profile["credit_limit"]:
        values["limit_use_24h"] = values["sum_24h"] / profile["credit_limit"]
    values["account_age"] = tx["event_time"] // DAY_MS - profile["opened_on"]
    values["risk_tier"] = profile["risk_tier"]
    if NOWHERE not in (tx["country"], profile["home_country"]):
        values["away_from_home"] = tx["country"] != profile["home_country"]
