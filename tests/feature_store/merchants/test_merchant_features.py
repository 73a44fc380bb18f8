"""The kernel over sorted facts equals plain Python; an example shows the features' meaning."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merchant_oracle import DAY_MS, HOUR_MS, Report, Tx, features, row
from thoroughness import examples

from feature_store.kernels.hashing import hash_strings
from feature_store.merchants.catalogue import MERCHANT_COLUMN, NEVER
from feature_store.merchants.facts import LABEL_FACT, fold
from feature_store.merchants.fraud_spans import FraudSpans
from feature_store.merchants.hours import HOUR_COUNT
from feature_store.merchants.offline import facts_of, features_as_of

pytestmark = pytest.mark.unit

DELAY = 7 * DAY_MS
START = 20_000 * DAY_MS


def spans(reports: list[Report]) -> FraudSpans:
    """Compute the times from and until which each transaction was known as fraud, by plain loops."""
    result: list[tuple[int, int, int]] = []
    for number in sorted({report.tx for report in reports}):
        since = None
        for report in sorted((r for r in reports if r.tx == number), key=lambda r: r.reported_at):
            if report.fraud and since is None:
                since = report.reported_at
            elif not report.fraud and since is not None:
                result.append((number, since, report.reported_at))
                since = None
        if since is not None:
            result.append((number, since, NEVER))
    columns = np.array(result, dtype=np.int64).reshape(-1, 3)
    return FraudSpans(columns[:, 0], columns[:, 1], columns[:, 2])


def ours(txs: list[Tx], reports: list[Report], asked: list[Tx], delay_ms: int = DELAY) -> np.ndarray:
    arrival = np.array([tx.arrival for tx in txs], dtype=np.int64)
    facts = facts_of(
        hashes([tx.merchant for tx in txs]),
        arrival,
        np.array([tx.spike for tx in txs], dtype=np.bool_),
        spans(reports),
    )
    when = np.array([tx.arrival for tx in asked], dtype=np.int64)
    return features_as_of(facts, hashes([tx.merchant for tx in asked]), when, delay_ms)


def hashes(merchants: list[str]) -> np.ndarray:
    return hash_strings(pa.array(merchants, pa.string()))[0]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Tx], list[Report], int]:
    """Transactions of two merchants, with early, late, repeated and reversed reports, and the label delay."""
    delay = draw(st.sampled_from([0, HOUR_MS // 2, DAY_MS, DELAY]))
    length = draw(st.sampled_from([6 * HOUR_MS, 3 * DAY_MS, 50 * DAY_MS]))
    hours = st.integers(0, length // HOUR_MS).map(lambda hour: hour * HOUR_MS)
    within = st.sampled_from([0, 1, HOUR_MS // 2, HOUR_MS - 1])
    count = draw(st.integers(1, 25))
    txs = sorted(
        Tx(draw(st.sampled_from("mn")), START + draw(hours) + draw(within), draw(st.booleans()))
        for _ in range(count)
    )
    txs.sort(key=lambda tx: tx.arrival)
    reports = [
        Report(
            number,
            txs[number].arrival + draw(st.integers(0, 2 * length)),
            draw(st.sampled_from([1, 1, 0])) == 1,
        )
        for number in draw(st.lists(st.integers(0, count - 1), max_size=30))
    ]
    return txs, reports, delay


@examples(50)
@given(histories())
def test_kernel_equals_plain_python(history):
    txs, reports, delay = history
    asked = [*txs, Tx("m", txs[-1].arrival + delay + HOUR_MS, False), Tx("stranger", txs[-1].arrival, False)]
    wanted = [row(features(txs, reports, tx.merchant, tx.arrival, delay)) for tx in asked]
    np.testing.assert_array_equal(ours(txs, reports, asked, delay), np.array(wanted))


@examples(20)
@given(histories(), st.randoms(use_true_random=False))
def test_order_of_the_facts_does_not_matter(history, random):
    txs, reports, delay = history
    shuffled = list(range(len(txs)))
    random.shuffle(shuffled)
    new_number = {number: at for at, number in enumerate(shuffled)}
    moved = [report._replace(tx=new_number[report.tx]) for report in reports]
    there = ours([txs[number] for number in shuffled], moved, txs, delay)
    np.testing.assert_array_equal(there, ours(txs, reports, txs, delay))


def test_a_compromised_merchant():
    # day      0     1     2     3  |  ...  10 (asked; ripe are days 0 to 2)
    # outcome  good  FRAUD FRAUD FRAUD
    # spike                yes
    txs = [Tx("m", START + day * DAY_MS, day == 2) for day in range(4)]
    reports = [Report(1, START + 8 * DAY_MS, True), Report(2, START + 9 * DAY_MS, True),
               Report(3, START + 9 * DAY_MS, True)]  # fmt: skip
    asked = Tx("m", START + 10 * DAY_MS, False)
    result = ours(txs, reports, [asked])[0]
    named = {name.removeprefix("merchant_"): result[at] for name, at in MERCHANT_COLUMN.items()}
    assert named["count_30d"] == 3
    assert named["risk_30d"] == 2 / 3
    assert (named["streak"], named["streak_age"], named["last_label"]) == (3, 9, 1)
    assert (named["unexplained_30d"], named["first_unexplained_age"]) == (2, 9)
    assert (named["last_unexplained_age"], named["genuine_since"]) == (7, 0)


def test_a_reversed_report_has_no_effect_from_two_hours_after_the_begin_of_its_hour():
    txs = [Tx("m", START, False)]
    reversed_at = START + 20 * DAY_MS
    reports = [Report(0, START + DAY_MS, True), Report(0, reversed_at + 7, False)]
    before, after = (Tx("m", reversed_at + 2 * HOUR_MS + ms, False) for ms in (-1, 0))
    streak, risk = MERCHANT_COLUMN["merchant_streak"], MERCHANT_COLUMN["merchant_risk_30d"]
    features = ours(txs, reports, [before, after])
    assert features[:, streak].tolist() == [1, 0]
    assert features[:, risk].tolist() == [1, 0]


def test_merchant_without_facts_has_none():
    nothing = fold(np.zeros(0, HOUR_COUNT), np.zeros(0, LABEL_FACT))
    features = features_as_of(nothing, hashes(["m"]), np.array([START]), DELAY)
    assert features[0, MERCHANT_COLUMN["merchant_count_30d"]] == 0
    assert np.isnan(features[0, MERCHANT_COLUMN["merchant_risk_30d"]])
