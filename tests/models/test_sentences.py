"""Sentences about features agree with the values: numbers are read back, words of direction are checked."""

import re
from collections.abc import Mapping

import pytest
from harness.alert_records import USUAL, alert
from hypothesis import assume, given
from hypothesis import strategies as st

from feature_store.catalogue import FEATURES, NAMES, WINDOWS, Feature
from feature_store.merchants.catalogue import MERCHANT_FEATURES, MERCHANT_NAMES
from models.policy import ESCALATED, RULES
from models.sentences.alerts import of_alert, of_rule
from models.sentences.features import SENTENCES, UNKNOWN, of_feature
from models.sentences.merchants import MERCHANT_SENTENCES, MERCHANT_UNKNOWN
from models.sentences.quantities import duration, money, number, plural

pytestmark = pytest.mark.unit

COUNTS = ("count", "arrivals", "merchants", "countries", "spikes")
SECONDS = {"s": 1, "min": 60, "h": 3_600, "days": 86_400}
HOURS = {"1m": 1 / 60, "5m": 1 / 12, "1h": 1, "24h": 24, "7d": 168, "30d": 720}
PER_HOURS = {"an hour": 1, "a day": 24, "in 30 days": 720}


def read(text: str) -> float:
    """The first number of a text."""
    match = re.search(r"-?\d[\d,]*(\.\d+)?", text)
    assert match is not None, text
    return float(match[0].replace(",", ""))


def is_near(told: float, value: float) -> bool:
    """Return whether `told` can be `value` rounded to two significant digits or to hundredths."""
    return abs(told - value) <= max(0.0501 * abs(value), 0.00501)


@given(st.floats(-1e9, 1e9))
def test_a_number_reads_back_and_has_no_exponent(value: float) -> None:
    assume(value == 0 or abs(value) > 1e-9)
    sentence = number(value)
    assert "e" not in sentence
    assert abs(read(sentence) - value) <= 0.0501 * abs(value)


@given(st.integers(0, 10**9))
def test_a_count_is_exact(count: int) -> None:
    sentence = plural(count, "payment")
    assert read(sentence) == count
    assert sentence.endswith("payment") is (count == 1)


@given(st.floats(0, 1e9))
def test_a_duration_reads_back_in_its_unit(seconds: float) -> None:
    assume(seconds == 0 or seconds > 1e-6)
    sentence, unit = duration(seconds).split(" ")
    assert abs(read(sentence) * SECONDS[unit] - seconds) <= 0.0501 * seconds
    assert unit == "s" or read(sentence) >= 1.9


def test_every_feature_of_the_catalogue_has_a_sentence_and_no_other() -> None:
    assert set(SENTENCES) == set(NAMES)
    assert set(UNKNOWN) <= set(NAMES)
    assert set(MERCHANT_SENTENCES) == set(MERCHANT_NAMES)
    assert set(MERCHANT_UNKNOWN) <= set(MERCHANT_NAMES)


@given(st.sampled_from(MERCHANT_FEATURES), st.integers(0, 10_000))
def test_a_sentence_of_a_merchant_names_value_and_window(feature: Feature, value: int) -> None:
    sentence = of_feature(feature.name, float(value), {}, "EUR")
    assert "this merchant" in sentence
    if feature.name == "merchant_last_label":
        assert sentence.endswith("fraud" if value else "genuine")
        return
    if feature.unit == "d":
        match = re.search(r"([\d,.]+) (s|min|h|days) ago$", sentence)
        assert match is not None
        assert is_near(read(match[1]) * SECONDS[match[2]], value * SECONDS["days"])
    else:
        assert is_near(read(sentence), value * (100 if "risk" in feature.name else 1))
    if feature.name.endswith(("_7d", "_30d")):
        assert f" in {feature.name.rpartition('_')[2][:-1]} days" in sentence


def test_an_unknown_merchant_feature_has_its_sentence() -> None:
    unknown = {feature.name for feature in MERCHANT_FEATURES if "unknown" in feature.meaning}
    assert unknown == set(MERCHANT_UNKNOWN)
    assert all(of_feature(name, None, {}, "EUR").startswith("no ") for name in unknown)


@given(st.sampled_from(FEATURES), st.integers(0, 100_000), st.integers(0, 10_000))
def test_a_sentence_of_a_count_or_sum_names_value_and_window(feature: object, value: int, more: int) -> None:
    name = getattr(feature, "name", "")
    stem, _, window = name.rpartition("_")
    assume(window in WINDOWS and stem in (*COUNTS, "sum", "mean", "max"))
    values = {**dict.fromkeys(NAMES), name: float(value), "count_30d": float(value + more), "sum_30d": 9e6}
    sentence = of_feature(name, float(value), values, "EUR")
    first = sentence.split("; ")[0]
    words = "30 days|7 days|24 hours|1 hour|5 minutes|1 minute"
    (length,) = re.findall(rf"(?:in|within|in the) ({words})", first)
    unit = {"m": "minute", "h": "hour", "d": "day"}[window[-1]]
    assert length.startswith(f"{int(window[:-1])} {unit}")
    assert read(first) == value
    assert ("EUR" in first) is (stem in ("sum", "mean", "max"))


@given(
    st.sampled_from([window for window in WINDOWS if window != "30d"]),
    st.integers(1, 1_000),
    st.integers(0, 20_000),
    st.floats(0.01, 10_000),
)
def test_the_usual_value_is_the_rate_or_mean_of_the_time_before(
    window: str, count: int, before: int, mean: float
) -> None:
    """The usual rate (per hour, day or 30 days) and mean come from the 30 days without the window."""
    values = {
        **dict.fromkeys(NAMES),
        f"count_{window}": float(count), "count_30d": float(count + before),
        f"sum_{window}": 100.0 * count, "sum_30d": 100.0 * count + before * mean,
    }  # fmt: skip
    hours = HOURS["30d"] - HOURS[window]
    for name, told_of in ((f"count_{window}", before), (f"sum_{window}", before * mean)):
        sentence = of_feature(name, values[name], values, "EUR")
        if before == 0:
            assert sentence.endswith("; no other payment in 30 days")
            continue
        usual = sentence.split("; usually ")[1]
        (per,) = [length for words, length in PER_HOURS.items() if usual.endswith(words)]
        assert is_near(read(usual), told_of * per / hours), sentence
        assert per >= HOURS[window]  # no shorter than the window
    for name in (f"mean_{window}", f"max_{window}"):
        sentence = of_feature(name, 100.0, values, "EUR")
        if before:
            assert is_near(read(sentence.split("; usually ")[1]), mean), sentence


def test_the_documented_example() -> None:
    values = {**USUAL, "count_5m": 7.0, "count_30d": 295.0}
    assert of_feature("count_5m", 7.0, values, "EUR") == "7 payments in 5 minutes; usually 0.4 an hour"


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e3))
def test_the_usual_amount_is_the_denominator_of_the_ratio(amount: float, ratio: float) -> None:
    values = {"amount": amount, "ratio_median": ratio}
    sentence, usual = of_feature("amount", amount, values, "CHF").split("; usually ")
    assert sentence == money(amount, "CHF")
    assert is_near(read(usual), amount / ratio)
    assert (read(usual) < read(sentence)) <= (ratio > 0.99)


@given(st.sampled_from(["zscore_30d", "zscore_all"]), st.floats(-50, 50))
def test_above_and_below_the_mean(name: str, value: float) -> None:
    assume(value == 0 or abs(value) > 1e-6)
    sentence = of_feature(name, value, {}, "EUR")
    assert ("above" in sentence) is (value > 0)
    assert ("below" in sentence) is (value < 0)
    assert is_near(read(sentence), abs(value))


@given(st.floats(-300, 700_000))
def test_late_or_ahead(value: float) -> None:
    assume(value == 0 or abs(value) > 1e-6)
    sentence = of_feature("lateness", value, {}, "EUR")
    assert sentence.startswith("dated" if value < 0 else "arrived")


@pytest.mark.parametrize(
    ("name", "one", "zero"),
    [
        ("is_night", "at night", "not at night"),
        ("is_weekend", "on a weekend", "on a weekday"),
        ("new_merchant", "first payment at this merchant", "a merchant of the last"),
        ("new_country", "first payment in this country", "a country of the last"),
        ("has_profile", "a card with a profile", "no profile"),
        ("away_from_home", "outside the card's home country", "in the card's home country"),
    ],
)
def test_a_flag_has_a_sentence_for_each_value(name: str, one: str, zero: str) -> None:
    assert of_feature(name, 1.0, {}, "EUR").startswith(one)
    assert of_feature(name, 0.0, {}, "EUR").startswith(zero)


MULTIPLES: Mapping[str, float] = {
    "ratio_mean_30d": 1, "ratio_robust": 1, "ratio_median": 1, "travel_speed": 1, "limit_use_24h": 100,
    "account_age": 1, "risk_tier": 1, "count_all": 1, "std_30d": 1, "time_since_previous": 1,
    "time_since_spike": 1, "lateness": 1,
}  # fmt: skip


@given(st.sampled_from(sorted(MULTIPLES)), st.floats(0.1, 20_000))
def test_all_other_sentences_have_their_value(name: str, value: float) -> None:
    sentence = of_feature(name, value, {}, "EUR")
    unit = re.search(r" (s|min|h|days) after ", sentence)
    assert is_near(read(sentence) * (SECONDS[unit[1]] if unit else 1), MULTIPLES[name] * value)


def test_the_hour_of_day_is_named_in_utc() -> None:
    assert of_feature("hour_of_day", 7.0, {}, "EUR") == "between 07:00 and 07:59 UTC"


@given(st.sampled_from(NAMES))
def test_an_unknown_value_has_no_number_of_its_own(name: str) -> None:
    sentence = of_feature(name, None, dict.fromkeys(NAMES), "EUR")
    assert sentence
    assert set(re.findall(r"\d+", sentence.replace(name, ""))) <= {"30"}


@given(
    st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=1),
    st.sampled_from(NAMES),
)
def test_every_value_has_a_sentence(values: dict[str, float | None], name: str) -> None:
    assert of_feature(name, values.get(name), values, "EUR")


def test_a_feature_of_another_release_is_shown_by_its_name() -> None:
    assert of_feature("moon_phase", 0.25, {}, "EUR") == "moon_phase is 0.25"
    assert of_feature("moon_phase", None, {}, "EUR") == "moon_phase is not known"


@pytest.mark.parametrize("rule", [*RULES, ESCALATED])
def test_every_rule_of_the_policy_has_a_sentence(rule: str) -> None:
    assert of_rule(rule, alert(1, 10**12)) != rule


def test_an_alert_names_rules_first_and_each_sentence_once() -> None:
    sentence = of_alert(
        alert(
            1, 10**12, ("amount", "amount_tail", "count_5m"), rules=["score", "velocity_5m", "blocked_card"],
            features={"amount": 523.1, "ratio_median": 10.9, "count_5m": 7.0, "arrivals_5m": 9.0},
        )
    )  # fmt: skip
    assert sentence == [
        "9 payments in 5 minutes, more than the policy allows",
        "the card is blocked",
        "523.10 EUR; usually 47.99 EUR",
        "7 payments in 5 minutes; usually 1.8 a day",
    ]


def test_an_alert_without_reasons_has_a_sentence() -> None:
    assert of_alert(alert(1, 10**12, ())) == ["score 0.930; the threshold is 0.400"]
    ranked = alert(1, 10**12, ()) | {"score_percentile": 99.97}
    assert of_alert(ranked) == [
        "score 0.930, which 99.97 % of the payments do not exceed; the threshold is 0.400"
    ]
    failed = alert(1, 10**12, (), rules=["velocity_5m"], score=None, model_failure="raised")
    assert of_alert(failed) == [
        "1 payment in 5 minutes, more than the policy allows",
        "the model failed; the rules decided alone",
    ]


def test_a_profile_that_compaction_has_removed_is_not_called_missing() -> None:
    values = (("has_profile", 0.0), ("risk_tier", None))
    reasons = [{"feature": name, "value": value, "contribution": 1.0} for name, value in values]
    seen = {**alert(1, 10**12, ()), "reasons": reasons}
    assert of_alert(seen) == ["no profile of the card"]
    assert of_alert({**seen, "profile_unknown": True}) == ["the profile of the card is not known any more"]
