"""Features of an alert as sentences: "7 payments in 5 minutes; usually 0.4 an hour". Pure.

A sentence has the value, the window of the feature, if any, and the card's usual value, if it can be
computed from the alert's features. For counts, sums, means and maxima of a window, the usual value is the
card's rate or mean over the part of the last 30 days that precedes the window, by event time; if the card has
no payment in that part, the sentence says so. For the transaction's amount it is the median of the latest
amounts, or else the mean of 30 days. Merchants, countries and spikes of a window are compared with those of
30 days.
"""

from collections.abc import Callable, Iterator, Mapping

from feature_store.catalogue import ARRIVAL_WINDOWS, DAY_MS, HOUR_MS, WINDOWS
from models.sentences.merchants import MERCHANT_SENTENCES, MERCHANT_UNKNOWN
from models.sentences.quantities import duration, money, number, plural

Values = Mapping[str, float | None]
"""Feature -> value; None where unknown."""
Sentence = Callable[[float, Values, str], str]
"""(the feature's value, all values, the currency) -> sentence."""

WORDS = {
    "1m": "1 minute", "5m": "5 minutes", "1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days",
}  # fmt: skip
"""Windows of the catalogue in words."""
LONGEST = "30d"
NO_PROFILE = "no profile of the card"
LEAST_RATE = 0.1
"""Least number in a rate's text. A rate is written per hour if that gives at least this number, otherwise per
day if that does, otherwise per 30 days; but never per a time that is shorter than the feature's window."""


def of_feature(name: str, value: float | None, values: Values, currency: str) -> str:
    """Describe a feature that raised the score; for one without a sentence return its name and value.

    Args:
        value: value of the feature; None: unknown.
        values: all features of the transaction.
        currency: ISO 4217.
    """
    if value is None:
        return UNKNOWN.get(name) or MERCHANT_UNKNOWN.get(name) or f"{name} is not known"
    if (merchant_sentence := MERCHANT_SENTENCES.get(name)) is not None:
        return merchant_sentence(value)
    sentence = SENTENCES.get(name)
    return f"{name} is {number(value)}" if sentence is None else sentence(value, values, currency)


def _rate(amount: float, window: str, text_of: Callable[[float], str]) -> str:
    """Format `amount`, the 30-day total minus that of `window`, as a rate per hour, day or 30 days."""
    over_ms = WINDOWS[LONGEST] - WINDOWS[window]
    for word, length in (("an hour", HOUR_MS), ("a day", DAY_MS)):
        if WINDOWS[window] <= length and amount * length / over_ms >= LEAST_RATE:
            return f"{text_of(amount * length / over_ms)} {word}"
    return f"{text_of(amount * WINDOWS[LONGEST] / over_ms)} in 30 days"


def _before(stem: str, window: str, values: Values) -> float | None:
    """Return a total of the longest window minus that of a shorter window; None if either is unknown."""
    whole, part = values.get(f"{stem}_{LONGEST}"), values.get(f"{stem}_{window}")
    return None if whole is None or part is None else whole - part


def _usual_rate(stem: str, window: str, values: Values, text_of: Callable[[float], str]) -> str:
    amount, count = _before(stem, window, values), _before("count", window, values)
    if window == LONGEST or amount is None or count is None:
        return ""
    if round(count) <= 0:
        return "; no other payment in 30 days"
    return f"; usually {_rate(max(0.0, amount), window, text_of)}"


def _usual_amount(window: str, values: Values, currency: str) -> str:
    total, count = _before("sum", window, values), _before("count", window, values)
    if window == LONGEST or total is None or count is None:
        return ""
    if round(count) <= 0:
        return "; no other payment in 30 days"
    return f"; usually {money(max(0.0, total) / count, currency)}"


def _amount(_: float, values: Values, currency: str) -> str:
    amount = values.get("amount")
    if amount is None:
        return "an amount that is not known"
    for ratio in (values.get("ratio_median"), values.get("ratio_mean_30d")):
        if ratio:
            return f"{money(amount, currency)}; usually {money(amount / ratio, currency)}"
    return money(amount, currency)


def _deviations(of: str) -> Sentence:
    def sentence(value: float, _: Values, __: str) -> str:
        side = "above" if value > 0 else "below" if value < 0 else "from"
        return f"amount {number(abs(value))} standard deviations {side} the mean of {of}"

    return sentence


def _windowed(window: str) -> Iterator[tuple[str, Sentence]]:
    within = WORDS[window]

    def in_longest(stem: str, values: Values) -> str:
        whole = values.get(f"{stem}_{LONGEST}")
        return "" if window == LONGEST or whole is None else f"; {number(whole)} in 30 days"

    yield (
        f"count_{window}",
        lambda value, values, _: (
            f"{plural(value, 'payment')} in {within}{_usual_rate('count', window, values, number)}"
        ),
    )
    yield (
        f"sum_{window}",
        lambda value, values, currency: (
            f"{money(value, currency)} in {within}"
            f"{_usual_rate('sum', window, values, lambda amount: money(amount, currency))}"
        ),
    )
    yield (
        f"mean_{window}",
        lambda value, values, currency: (
            f"{money(value, currency)} a payment in {within}{_usual_amount(window, values, currency)}"
        ),
    )
    yield (
        f"max_{window}",
        lambda value, values, currency: (
            f"a payment of {money(value, currency)} in {within}{_usual_amount(window, values, currency)}"
        ),
    )
    yield (
        f"merchants_{window}",
        lambda value, values, _: f"{plural(value, 'merchant')} in {within}{in_longest('merchants', values)}",
    )
    yield (
        f"countries_{window}",
        lambda value, values, _: (
            f"{number(value)} {'country' if value == 1 else 'countries'} in {within}"
            f"{in_longest('countries', values)}"
        ),
    )
    if window in ARRIVAL_WINDOWS:
        yield (
            f"arrivals_{window}",
            lambda value, values, _: (
                f"{plural(value, 'payment')} arrived within {within}"
                f"{_usual_rate('count', window, values, number)}"
            ),
        )
    if window in ("1h", "24h", "7d", "30d"):
        yield (
            f"spikes_{window}",
            lambda value, values, _: (
                f"{plural(value, 'unusually large payment')} in the {within} before"
                f"{in_longest('spikes', values)}"
            ),
        )


def _either(if_one: str, if_zero: str) -> Sentence:
    return lambda value, _, __: if_one if value else if_zero


def _lateness(value: float, _: Values, __: str) -> str:
    if value < 0:
        return f"dated {duration(-value)} ahead of its arrival"
    return f"arrived {duration(value)} after it was made"


def _travel(value: float, _: Values, __: str) -> str:
    if value == 0:
        return "in the same country as the payment before"
    return f"{number(value)} km/h from the country of the payment before"


SENTENCES: Mapping[str, Sentence] = {
    "amount": _amount,
    "amount_tail": _amount,
    "hour_of_day": lambda value, _, __: f"between {value:02.0f}:00 and {value:02.0f}:59 UTC",
    "is_night": _either("at night (00:00 to 06:59 UTC)", "not at night"),
    "is_weekend": _either("on a weekend", "on a weekday"),
    "lateness": _lateness,
    **{name: sentence for window in WINDOWS for name, sentence in _windowed(window)},
    "time_since_previous": lambda value, _, __: f"{duration(value)} after the payment before",
    "count_all": lambda value, _, __: (
        f"{plural(value, 'payment')} of the card before this one" if value else "the card's first payment"
    ),
    "zscore_all": _deviations("all payments before"),
    "zscore_30d": _deviations("30 days"),
    "std_30d": lambda value, _, currency: (
        f"{money(value, currency)} standard deviation of the amounts in 30 days"
    ),
    "ratio_mean_30d": lambda value, _, __: f"{number(value)} times the mean amount of 30 days",
    "ratio_robust": lambda value, _, __: f"{number(value)} times the card's usual amount",
    "ratio_median": lambda value, _, __: f"{number(value)} times the median of the latest payments",
    "time_since_spike": lambda value, _, __: f"{duration(value)} after an unusually large payment",
    "new_merchant": _either("first payment at this merchant in 30 days", "a merchant of the last 30 days"),
    "new_country": _either("first payment in this country in 30 days", "a country of the last 30 days"),
    "travel_speed": _travel,
    "has_profile": _either("a card with a profile", NO_PROFILE),
    "limit_use_24h": lambda value, _, __: f"{number(100 * value)} % of the credit limit in 24 hours",
    "account_age": lambda value, _, __: f"account opened {plural(value, 'day')} before",
    "risk_tier": lambda value, _, __: f"risk tier {number(value)} of 0 to 3",
    "away_from_home": _either("outside the card's home country", "in the card's home country"),
}
"""Feature of the catalogue -> sentence."""

_TOO_FEW = "too few payments before to compare the amount with"
UNKNOWN: Mapping[str, str] = {
    **dict.fromkeys(
        ("zscore_all", "zscore_30d", "std_30d", "ratio_mean_30d", "ratio_robust", "ratio_median"), _TOO_FEW
    ),
    "time_since_previous": "no payment in the 30 days before",
    "time_since_spike": "no unusually large payment in the 30 days before",
    "travel_speed": "the travel speed from the payment before is not known",
    "limit_use_24h": "no credit limit to compare with",
    "account_age": NO_PROFILE,
    "risk_tier": NO_PROFILE,
    "away_from_home": "the card's home country is not known",
}
"""Feature -> sentence for an unknown value."""
