"""The counts behind live precision equal naive counts of all records."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.precision.labelled_cards import LabelPosition
from service.quality.outcomes import Outcomes, Quality

pytestmark = pytest.mark.unit

IDS = st.tuples(st.sampled_from("ab"), st.sampled_from("123"))
"""(card, transaction)."""
RULES = {1: ("score",), 2: ("score", "velocity_5m"), 3: ("blocked_card",)}


def alert(card: str, transaction: str) -> dict[str, Any]:
    """The alert of a transaction, always the same."""
    number = int(transaction)
    return {
        "card_id": card,
        "transaction_id": transaction,
        "rules": list(RULES[number]),
        "model": {"name": "card-fraud", "version": str(number % 2)},
        "rollout_id": f"r{card}",
    }


def names(one: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        *(("rule", rule) for rule in one["rules"]),
        ("model", f"card-fraud {one['model']['version']}"),
        ("rollout", one["rollout_id"]),
    }


def recount(
    alerts: list[tuple[str, str]], labels: list[tuple[tuple[str, str], LabelPosition, bool]]
) -> list[Quality]:
    """Counts that `Outcomes.qualities` must return."""
    last = {key: (order, fraud) for key, order, fraud in sorted(labels)}
    counts: Counter[tuple[tuple[str, str], str]] = Counter()
    for key in dict.fromkeys(alerts):
        outcome = "open" if key not in last else "fraud" if last[key][1] else "genuine"
        for name in names(alert(*key)):
            counts[name, outcome] += 1
    models = sorted({name for name, _ in counts})
    return [
        Quality(*name, *(counts[name, outcome] for outcome in ("fraud", "genuine", "open")))
        for name in models
    ]


ORDERS = st.tuples(st.integers(0, 5), st.sampled_from(["labels", "chargebacks"]), st.integers(0, 5))
EVENTS = st.lists(
    st.one_of(st.tuples(IDS), st.tuples(IDS, ORDERS, st.booleans())),
    max_size=60,
    unique_by=lambda event: event if len(event) == 1 else event[1],
)


@given(EVENTS)
def test_counts_equal_those_of_all_records_in_any_order_of_alerts_and_labels(events: list[Any]) -> None:
    outcomes = Outcomes()
    for event in events:
        if len(event) == 1:
            outcomes.alert(alert(*event[0]))
        else:
            outcomes.label(*event[0], *event[1:])
    alerts = [event[0] for event in events if len(event) == 1]
    labels = [event for event in events if len(event) == 3]
    assert outcomes.qualities() == recount(alerts, labels)
    for event in events:  # a reader that starts again reads all alerts again
        if len(event) == 1:
            outcomes.alert(alert(*event[0]))
    assert outcomes.qualities() == recount(alerts, labels)


def test_only_the_newest_are_kept() -> None:
    outcomes = Outcomes(most_alerts=2, most_labels=2)
    for transaction in "123":
        outcomes.alert(alert("a", transaction))
        outcomes.label("a", transaction, (int(transaction), "labels", 0), True)
    assert outcomes.qualities() == recount(
        [("a", "2"), ("a", "3")],
        [(("a", "2"), (2, "labels", 0), True), (("a", "3"), (3, "labels", 0), True)],
    )
    # the label of a2, the oldest, is dropped; its alert stays
    outcomes.label("b", "1", (4, "labels", 0), False)
    assert outcomes.qualities() == recount([("a", "2"), ("a", "3")], [(("a", "3"), (3, "labels", 0), True)])


def test_precision_is_of_alerts_with_a_label() -> None:
    assert Quality("rule", "score", 3, 1, 96).precision == 0.75
    assert Quality("rule", "score", 0, 0, 96).precision is None
