"""Features of an alert that are computed from labels at the merchant, as sentences. Pure.

A fraud is *hidden* if its amount was no spike on its card: such frauds point to a compromised merchant. A
payment has a known outcome if it was reported as fraud, or if the label delay has passed without such a
report (docs/labels.md). `merchant_count_*` and `merchant_risk_*` cover only payments whose label delay has
passed, whether they were reported as fraud or not.
"""

from collections.abc import Callable, Iterator, Mapping

from models.sentences.quantities import duration, number, plural

DAY_S = 86_400
Sentence = Callable[[float], str]
"""Feature value -> sentence."""


def _windowed(window: str, days: int) -> Iterator[tuple[str, Sentence]]:
    within = f"in {days} days"
    yield (
        f"merchant_count_{window}",
        lambda value: f"{plural(value, 'payment')} with a known outcome at this merchant {within}",
    )
    yield (
        f"merchant_risk_{window}",
        lambda value: f"{number(100 * value)} % of this merchant's payments {within} were reported as fraud",
    )
    yield (
        f"merchant_unexplained_{window}",
        lambda value: f"{plural(value, 'hidden fraud')} at this merchant {within}",
    )


def _ago(event: str) -> Sentence:
    return lambda days: f"{event} at this merchant was {duration(days * DAY_S)} ago"


MERCHANT_SENTENCES: Mapping[str, Sentence] = {
    **dict(_windowed("7d", 7)),
    **dict(_windowed("30d", 30)),
    "merchant_last_label": lambda value: (
        f"this merchant's newest payment with a known outcome was {'fraud' if value else 'genuine'}"
    ),
    "merchant_streak": lambda value: f"{plural(value, 'reported fraud')} in a row at this merchant",
    "merchant_streak_age": _ago("the first of the frauds in a row"),
    "merchant_last_unexplained_age": _ago("the newest hidden fraud"),
    "merchant_first_unexplained_age": _ago("the oldest hidden fraud that still counts"),
    "merchant_genuine_since": lambda value: (
        f"{plural(value, 'genuine payment')} at this merchant since the newest hidden fraud"
    ),
}
"""Feature of `feature_store.merchants.catalogue` -> sentence."""

_NONE_KNOWN = "no payment with a known outcome at this merchant"
_NONE_HIDDEN = "no hidden fraud at this merchant in 30 days"
MERCHANT_UNKNOWN: Mapping[str, str] = {
    "merchant_risk_7d": f"{_NONE_KNOWN} in 7 days",
    "merchant_risk_30d": f"{_NONE_KNOWN} in 30 days",
    "merchant_last_label": _NONE_KNOWN,
    "merchant_streak_age": "no frauds in a row at this merchant",
    **dict.fromkeys(
        ("merchant_last_unexplained_age", "merchant_first_unexplained_age", "merchant_genuine_since"),
        _NONE_HIDDEN,
    ),
}
"""Feature -> sentence for an unknown value."""
