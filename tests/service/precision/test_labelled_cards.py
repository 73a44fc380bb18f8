"""Counts of labelled cards equal naive ones, in any order of the records."""

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from models.guards.counts import Labelled
from service.labels.records import Alert, Label, ShadowAlert
from service.precision.labelled_cards import LabelledCards
from service.precision.trial import LabelCounts, LabelledTrial
from service.precision.trial_topics import TrialTopics

pytestmark = pytest.mark.unit

CHALLENGERS = ("b", "d")
SINCE, UNTIL = 100, 200
TRIAL = LabelledTrial("r2", CHALLENGERS, SINCE, UNTIL)


@dataclass(frozen=True)
class Payment:
    """A transaction with the verdict of each model."""

    card: str
    id: str
    arrival: int
    offset: int
    champion: bool
    challengers: tuple[bool, bool]
    decided_by: int
    """-1: the champion; otherwise index of the challenger."""

    @property
    def verdicts(self) -> tuple[bool, bool, bool]:
        return (self.champion, *self.challengers)

    @property
    def position(self) -> tuple[int, int, int]:
        return self.arrival, 0, self.offset

    def records(self) -> list[Alert | ShadowAlert | Label]:
        """Records of the job: the deciding model's alert, and verdicts that differ from the champion's."""
        common = self.card, self.id, self.position
        written: list[Alert | ShadowAlert | Label] = []
        if self.verdicts[self.decided_by + 1]:
            written.append(Alert(*common, kind=()))
        for name, alerts in zip(CHALLENGERS, self.challengers, strict=True):
            if alerts != self.champion:
                written.append(ShadowAlert(*common, TRIAL.rollout_id, name, self.champion))
        return written


@dataclass(frozen=True)
class LabelRecord:
    """A label."""

    card: str
    id: str
    arrival: int
    topic: int
    offset: int
    fraud: bool

    def records(self) -> list[Alert | ShadowAlert | Label]:
        return [Label(self.card, self.id, (self.arrival, self.topic, self.offset), self.fraud)]


@st.composite
def logs(draw: st.DrawFn) -> list[Payment | LabelRecord]:
    """Payments in the order of their arrivals, with repeated ids; labels of known and unknown payments."""
    arrivals = sorted(draw(st.lists(st.integers(SINCE - 20, UNTIL + 20), max_size=14)))
    cards, ids, flags = st.sampled_from("xyz"), st.sampled_from("1234"), st.booleans()
    payments: list[Payment | LabelRecord] = [
        Payment(
            draw(cards), draw(ids), arrival, offset, draw(flags), (draw(flags), draw(flags)),
            draw(st.integers(-1, 1)),
        )
        for offset, arrival in enumerate(arrivals)
    ]  # fmt: skip
    labels: list[Payment | LabelRecord] = [
        LabelRecord(
            draw(cards), draw(ids), draw(st.integers(0, 5)), draw(st.integers(0, 1)), offset,
            draw(flags),
        )
        for offset in range(draw(st.integers(0, 14)))
    ]  # fmt: skip
    return payments + labels


def counted(log: list[Payment | LabelRecord], order: random.Random, **limits: int) -> LabelCounts:
    """Counts after the records, each read once or twice, in some order."""
    records = [record for item in log for record in item.records()]
    records += order.sample(records, order.randint(0, len(records)))
    order.shuffle(records)
    cards = LabelledCards(TRIAL, **limits)
    for record in records:
        cards.take(record)
        if order.random() < 0.2:
            cards.counts()  # reading the counts does not change them
    return cards.counts()


def naive(log: list[Payment | LabelRecord], most: int = 1_000, most_of_card: int = 1_000) -> LabelCounts:
    """Count each model's cards by the label of the first labelled payment on which the model alerted."""
    seen = [item for item in log if isinstance(item, Payment) and item.records()]
    payments = [item for item in seen if SINCE <= item.arrival < UNTIL]
    of_cards: dict[str, list[Payment]] = {}
    for payment in sorted(payments, key=lambda item: item.position):
        of_cards.setdefault(payment.card, []).append(payment)
    kept = [payment for own in of_cards.values() for payment in own[:most_of_card]]
    kept = sorted(kept, key=lambda item: item.position)[:most]
    labels = [item for item in log if isinstance(item, LabelRecord)]
    labels.sort(key=lambda item: (item.arrival, item.topic, item.offset))
    last = {(item.card, item.id): item for item in labels}
    result = []
    for model in range(3):
        first: dict[str, bool] = {}
        for payment in kept:
            label = last.get((payment.card, payment.id))
            if payment.verdicts[model] and label is not None:
                first.setdefault(payment.card, label.fraud)
        frauds = sum(first.values())
        result.append(Labelled(frauds, len(first) - frauds))
    return LabelCounts(result[0], dict(zip(CHALLENGERS, result[1:], strict=True)))


@examples(200)
@given(logs(), st.randoms())
def test_counts_equal_those_of_all_records_in_any_order(
    log: list[Payment | LabelRecord], order: random.Random
) -> None:
    assert counted(log, order) == naive(log)


@examples(200)
@given(logs(), st.randoms(), st.integers(1, 6), st.integers(1, 4))
def test_within_limits_the_first_of_the_log_count_in_any_order(
    log: list[Payment | LabelRecord], order: random.Random, most: int, most_of_card: int
) -> None:
    counts = counted(log, order, most_alerts=most, most_of_card=most_of_card)
    assert counts == naive(log, most, most_of_card)


def payment(card: str, offset: int, verdicts: tuple[bool, bool] = (True, True), by: int = -1) -> Payment:
    return Payment(card, f"t{offset}", SINCE + offset, offset, verdicts[0], (verdicts[1], verdicts[0]), by)


def test_a_burst_of_one_card_is_one_unit_by_its_first_label() -> None:
    burst: list[Payment | LabelRecord] = [payment("x", offset) for offset in range(20)]
    labels: list[Payment | LabelRecord] = [
        LabelRecord("x", f"t{offset}", 1, 0, offset, offset != 3) for offset in range(3, 20)
    ]
    counts = counted(burst + labels, random.Random(0))
    assert counts == LabelCounts(Labelled(0, 1), {"b": Labelled(0, 1), "d": Labelled(0, 1)})
    # the label of an earlier payment arrives: now it is the card's label
    counts = counted([*burst, *labels, LabelRecord("x", "t1", 9, 1, 0, True)], random.Random(0))
    assert counts == LabelCounts(Labelled(1, 0), {"b": Labelled(1, 0), "d": Labelled(1, 0)})


def test_an_alert_of_one_model_alone_counts_for_that_model() -> None:
    log: list[Payment | LabelRecord] = [
        payment("x", 0, (False, True)),  # written only as a shadow alert
        payment("y", 1, (True, False)),
        payment("z", 2, (True, False), by=0),  # the canary b decides that it is no alert
        *(LabelRecord(card, f"t{offset}", 1, 0, offset, False) for offset, card in enumerate("xyz")),
    ]
    counts = counted(log, random.Random(0))
    assert counts == LabelCounts(Labelled(0, 2), {"b": Labelled(0, 1), "d": Labelled(0, 2)})


def test_labels_without_alerts_are_kept_up_to_a_limit() -> None:
    cards = LabelledCards(TRIAL, most_unmatched=2)
    for number in range(4):
        cards.take(Label(f"c{number}", f"t{number}", (number, 0, number), fraud=True))
    for number in range(4):
        (alert,) = payment(f"c{number}", number).records()
        cards.take(alert)
    assert cards.counts().champion == Labelled(2, 0)
    # labels of transactions whose alert is kept are never dropped
    for number in range(50):
        cards.take(Label("other", f"t{number}", (number, 0, number), fraud=True))
    assert cards.counts().champion == Labelled(2, 0)


def test_shadow_alerts_of_another_rollout_are_not_counted() -> None:
    cards = LabelledCards(TRIAL)
    for record in payment("x", 0, (False, True)).records():
        assert isinstance(record, ShadowAlert)
        cards.take(record._replace(rollout_id="r1"))
    cards.take(Label("x", "t0", (1, 0, 1), fraud=False))
    assert cards.counts().challengers["b"] == Labelled()


def test_labelled_cards_are_not_counted_while_new_partitions_cannot_be_read() -> None:
    cards = LabelledCards(TRIAL)
    follower = SimpleNamespace(behind=set(), trouble=None)
    topics: Any = SimpleNamespace(_follower=follower, _cards=cards)
    assert TrialTopics.counts(topics).waiting_for is None
    follower.trouble = "new partitions of labels cannot be looked up, and are not read: no broker"
    assert TrialTopics.counts(topics).waiting_for == follower.trouble
