"""What a report says of alerts: outcomes by labels, changes, thresholds and budgets, compared with loops."""

import json
from collections import Counter
from datetime import date
from random import Random

import pytest
from harness.group_batches import as_records
from harness.job_world import World
from harness.log_world import DAY, START, TOPICS
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.utc import date_of, day_of
from streaming_job.backtest import comparison
from streaming_job.backtest.alerts import Alert, LiveAlerts
from streaming_job.backtest.labels import Labels
from streaming_job.backtest.log import BacktestError, Extent
from streaming_job.backtest.report import budget_use, higher_thresholds
from streaming_job.backtest.window import choose

pytestmark = pytest.mark.unit


def alert(number: int, decision: str = "review", score: float | None = 0.5, *rules: str) -> Alert:
    """An alert about the n-th transaction."""
    return Alert(
        f"{Random(number).random()}", 0, number, START + number, decision, rules or ("score",), score,
        f"card-{number:06}", f"t{number}", "m", 10.0, "EUR", "FR", (),
    )  # fmt: skip


ALERTS = st.lists(
    st.builds(
        alert,
        st.integers(0, 30),
        st.sampled_from(["review", "decline"]),
        st.sampled_from([0.2, 0.3, 0.3, 0.5, 0.9]),
        st.sampled_from(["score", "velocity_5m"]),
    ),
    max_size=25,
    unique_by=lambda alert: alert.offset,
)
NO_LABELS = Labels(TOPICS)


def labels_of(world: World) -> Labels:
    labels = Labels(TOPICS)
    for records in as_records([*world.labels, *world.chargebacks]):
        labels.add(records)
    return labels


def test_of_several_labels_the_last_counts_and_a_refund_only_without_others() -> None:
    world = World()
    for _ in range(4):
        world.tx(0)
    world.label(0, DAY, "chargeback")
    world.label(0, 2 * DAY, "genuine")  # after the chargeback, though on the other topic
    world.label(1, DAY, "fraud")
    world.label(1, 2 * DAY, "refund")
    world.label(3, DAY, "refund")
    world.raw_label(b"{", 3 * DAY, b"c")
    labels = labels_of(world)
    assert [labels.of("c", f"t{n}") for n in range(4)] == ["genuine", "fraud", "unknown", "refunded"]
    assert labels.newest == START + 2 * DAY


@examples(60)
@given(ALERTS, ALERTS)
def test_changes_count_each_transaction_once(live: list[Alert], backtest: list[Alert]) -> None:
    found = list(comparison.pairs(live, backtest))
    expected = Counter[str]()
    for offset in range(31):
        before, after = ([a.decision for a in side if a.offset == offset] for side in (live, backtest))
        if before or after:
            kind = "same" if before == after else "other_decision" if before and after else ""
            expected[kind or ("new" if after else "gone")] += 1
    counted = {kind: row["alerts"] for kind, row in comparison.changes(found, NO_LABELS).items()}
    assert counted == {kind: expected[kind] for kind in counted}
    sampled = comparison.sample(found, NO_LABELS)
    different = [row["live"] != row["backtest"] for row in sampled]
    assert different == sorted(different, reverse=True)
    assert len(sampled) == len(found)
    assert "card-000" not in json.dumps(sampled)


def test_a_sample_has_fifty_transactions_and_is_always_the_same() -> None:
    live, backtest = [alert(n) for n in range(40)], [alert(n) for n in range(20, 100)]
    sampled = comparison.sample(list(comparison.pairs(live, backtest)), NO_LABELS)
    again = comparison.sample(list(comparison.pairs(live[::-1], backtest[::-1])), NO_LABELS)
    assert sampled == again
    assert len(sampled) == 50
    assert all(row["live"] != row["backtest"] for row in sampled)


@examples(100)
@given(ALERTS, st.integers(0, 26))
def test_the_threshold_of_a_budget_is_the_least_that_keeps_it(alerts: list[Alert], most: int) -> None:
    def left(threshold: float) -> int:
        return sum(a.rules != ("score",) or (a.score or 0) >= threshold for a in alerts)

    result = budget_use(0.2, alerts, most or 0.5, 1.0)
    keeping = [t for t in (0.2, *(a.score or 0 for a in alerts if a.rules == ("score",))) if left(t) <= most]
    assert result["threshold"] == min(keeping, default=None)
    for row in higher_thresholds(0.2, alerts, NO_LABELS, 1.0):
        assert row["alerts_a_day"] == left(row["threshold"]) == row["unknown"]


def test_the_days_over_a_budget_are_named() -> None:
    alerts = [alert(n) for n in range(5)]
    assert budget_use(0.2, alerts, 4, 1.0)["days_over"] == [date_of(day_of(START))]
    assert budget_use(0.2, alerts, 5, 1.0)["days_over"] == []


def test_live_alerts_before_the_window_are_recalled_and_others_left_out() -> None:
    live = LiveAlerts("transactions", START, START + DAY)
    record = {
        **alert(0)._asdict(), "reasons": [{"feature": "amount"}], "rollout_id": "r",
        "source": {"topic": "transactions", "partition": 0, "offset": 5},
    }  # fmt: skip

    def add(arrival: int, topic: str = "transactions", offset: int = 5, suppressed: bool = False) -> None:
        source = {"topic": topic, "partition": 0, "offset": offset}
        live.add(
            [json.dumps({**record, "arrival_time": arrival, "source": source}).encode()],
            suppressed=suppressed,
        )

    add(START - 1)
    add(START - 1, offset=6, suppressed=True)
    add(START)
    add(START + DAY)
    add(START, topic="other")
    assert [a.arrival for a in live.sent] == [START]
    before = live.before()
    assert (before.sent[0].tolist(), before.suppressed[0].tolist()) == ([5], [6])


def test_a_window_is_the_last_calendar_days() -> None:
    midnight = day_of(START) * DAY
    extents = [Extent(0, midnight - 5 * DAY, START), Extent(0, midnight - 4 * DAY, START - 1)]
    window, history = choose(extents, 7 * DAY, 2, None)
    assert (window.since, window.until) == (midnight - DAY, START + 1)
    assert history.is_whole
    assert history.windows_whole_from == history.begins == midnight - 5 * DAY
    window, _ = choose(extents, 7 * DAY, 2, date.fromisoformat(date_of(day_of(START))))
    assert (window.since, window.until) == (midnight - 2 * DAY, midnight)
    _, history = choose([*extents, Extent(3, START - 60 * DAY, START)], 7 * DAY, 2, None)
    assert not history.is_whole
    assert history.windows_whole_from == START - 23 * DAY
    # a partition that has lost its first transactions
    window, history = choose([*extents, Extent(3, midnight + 5, START)], 7 * DAY, 2, None)
    assert window.since == midnight + 5
    assert history.windows_whole_from == midnight + 5 + 37 * DAY


@pytest.mark.parametrize("extents", [[], [Extent(0, START, START)]])
def test_a_window_without_transactions_is_refused(extents: list[Extent]) -> None:
    with pytest.raises(BacktestError):
        choose(extents, 7 * DAY, 2, date(2020, 1, 1))
