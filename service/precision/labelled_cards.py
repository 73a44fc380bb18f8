"""Alerts of a trial and their labels, joined and counted by card. Pure.

The verdict of each model on a transaction, alert or no alert, follows from three topics. `fraud-alerts` and
`suppressed-alerts` have the alerts of the model that decided. `shadow-alerts` has a record for each
challenger whose verdict differs from the champion's, with the champion's verdict. So a challenger without a
shadow alert agrees with the champion. If a transaction has an alert and no shadow alert, the champion
alerted: the model that decided is the champion, or a canary that agrees with it.

The unit is a card, because the alerts of a burst are not independent. For each model, a card is counted by
one label: that of the card's first transaction in the log that has a label and on which the model alerted.
The counts do not depend on the order in which records are read: positions in the log identify transactions
and decide which are kept (MOST_ALERTS, MOST_OF_CARD), and a transaction's last label by arrival counts. There
is one exception: a label that is dropped because more than MOST_UNMATCHED labels wait for their alerts is
lost if its alert is read later.
"""

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field

from models.guards.counts import Labelled
from service.labels.records import Alert, Label, Position, ShadowAlert
from service.precision.trial import LabelCounts, LabelledTrial
from streaming_job.decode import labels

Said = tuple[labels.Position, bool]
"""Position of a label, and whether it says fraud."""

MOST_ALERTS = 50_000
"""Transactions of a trial that are kept: the first ones in the log."""
MOST_OF_CARD = 50
"""Transactions of one card that are kept: its first ones, so that a hot card does not displace others."""
MOST_UNMATCHED = 100_000
"""Labels kept without their transaction, the last ones read: an alert may be read after its label."""


@dataclass(slots=True)
class _Transaction:
    """A transaction on which at least one model alerted."""

    transaction_id: str
    champion: bool = True
    """Whether the champion alerted; it did if there is an alert and no shadow alert."""
    differing: tuple[str, ...] = ()
    """Challengers whose verdict is not the champion's."""

    def alerts(self, challenger: str | None) -> bool:
        """Return whether a challenger alerted; None stands for the champion."""
        return self.champion != (challenger in self.differing)


@dataclass(slots=True)
class _Card:
    """A card's transactions on which a model alerted, and their labels."""

    transactions: dict[Position, _Transaction] = field(default_factory=dict)
    labels: dict[str, Said] = field(default_factory=dict)
    """By transaction id."""
    counted: tuple[bool | None, ...] = ()
    """For each model: whether the label by which the card is counted says fraud; None if not counted."""

    def has(self, transaction_id: str) -> bool:
        """Return whether a transaction with this id is kept."""
        return any(item.transaction_id == transaction_id for item in self.transactions.values())


class LabelledCards:
    """The alerts and labels of one trial."""

    def __init__(
        self,
        trial: LabelledTrial,
        most_alerts: int = MOST_ALERTS,
        most_of_card: int = MOST_OF_CARD,
        most_unmatched: int = MOST_UNMATCHED,
    ) -> None:
        """Start without records.

        Args:
            trial: the trial; transactions outside its time are ignored.
        """
        self._trial = trial
        self._most_alerts, self._most_of_card, self._most_unmatched = (
            most_alerts,
            most_of_card,
            most_unmatched,
        )
        self._models: tuple[str | None, ...] = (None, *trial.challengers)
        self._cards: dict[str, _Card] = {}
        self._kept: list[tuple[Position, str]] = []
        """(position, card id) of the transactions that are kept, ascending."""
        self._unmatched: dict[tuple[str, str], Said] = {}
        """(card id, transaction id) -> label without its transaction, in the order of reading."""
        self._changed: set[str] = set()
        """Ids of the cards whose outcomes (`_Card.counted`) must be determined again."""
        self._counts: Counter[tuple[str | None, bool]] = Counter()
        """Number of cards by model (None: the champion) and by whether the label says fraud."""

    def take(self, record: Alert | ShadowAlert | Label) -> None:
        """Add a record; a repetition changes nothing, and the last label of a transaction counts."""
        if isinstance(record, Label):
            self._label(record)
        elif isinstance(record, Alert):
            self._transaction(record)
        elif (
            record.rollout_id == self._trial.rollout_id
            and (transaction := self._transaction(record)) is not None
        ):
            transaction.champion = record.champion
            transaction.differing = tuple(sorted({*transaction.differing, record.challenger}))

    def counts(self) -> LabelCounts:
        """Return the labelled cards of each model so far."""
        for card_id in self._changed:
            if (card := self._cards.get(card_id)) is not None:
                self._count(card, self._units(card))
        self._changed.clear()
        champion, *challengers = (
            Labelled(self._counts[model, True], self._counts[model, False]) for model in self._models
        )
        return LabelCounts(champion, dict(zip(self._trial.challengers, challengers, strict=True)))

    def _label(self, label: Label) -> None:
        card_id, transaction_id, *_ = label
        card, said = self._cards.get(card_id), (label.position, label.fraud)
        if card is None or not card.has(transaction_id):
            self._keep_unmatched((card_id, transaction_id), said)
        elif transaction_id not in card.labels or card.labels[transaction_id] < said:
            card.labels[transaction_id] = said
            self._changed.add(card_id)

    def _transaction(self, record: Alert | ShadowAlert) -> _Transaction | None:
        """Return the record's transaction, which may be new; None if it is not kept."""
        card_id, transaction_id, position, *_ = record
        card = self._cards.get(card_id)
        known = card.transactions.get(position) if card is not None else None
        if known is None:
            if not self._trial.covers(position[0]) or not self._make_room(card, card_id, position):
                return None
            card = self._cards.setdefault(card_id, _Card())
            known = card.transactions[position] = _Transaction(transaction_id)
            insort(self._kept, (position, card_id))
            if (label := self._unmatched.pop((card_id, transaction_id), None)) is not None:
                card.labels[transaction_id] = label
        self._changed.add(card_id)
        return known

    def _make_room(self, card: _Card | None, card_id: str, position: Position) -> bool:
        """At a limit, make room by dropping the last transaction; return False if the new one is the last.

        A dropped transaction is never kept again, whatever is read later: the number of earlier transactions
        only grows, for its card as for all cards.
        """
        entry = (position, card_id)
        is_full = len(self._kept) >= self._most_alerts
        if is_full and entry > self._kept[-1]:
            return False
        if card is not None and len(card.transactions) >= self._most_of_card:
            last = max(card.transactions)
            if position > last:
                return False
            self._drop((last, card_id))
        elif is_full:
            self._drop(self._kept[-1])
        return True

    def _drop(self, entry: tuple[Position, str]) -> None:
        del self._kept[bisect_left(self._kept, entry)]
        position, card_id = entry
        card = self._cards[card_id]
        transaction_id = card.transactions.pop(position).transaction_id
        if not card.has(transaction_id) and transaction_id in card.labels:
            self._keep_unmatched((card_id, transaction_id), card.labels.pop(transaction_id))
        if not card.transactions:
            self._count(card, ())
            del self._cards[card_id]
        self._changed.add(card_id)

    def _keep_unmatched(self, key: tuple[str, str], label: Said) -> None:
        before = self._unmatched.pop(key, label)
        self._unmatched[key] = max(before, label)
        if len(self._unmatched) > self._most_unmatched:
            del self._unmatched[next(iter(self._unmatched))]

    def _units(self, card: _Card) -> tuple[bool | None, ...]:
        labelled = [
            (transaction, card.labels[transaction.transaction_id][1])
            for _, transaction in sorted(card.transactions.items())
            if transaction.transaction_id in card.labels
        ]
        return tuple(
            next((fraud for transaction, fraud in labelled if transaction.alerts(model)), None)
            for model in self._models
        )

    def _count(self, card: _Card, units: tuple[bool | None, ...]) -> None:
        """Replace the card's outcomes in the counts."""
        for outcomes, by in ((card.counted, -1), (units, 1)):
            for model, fraud in zip(self._models, outcomes, strict=False):
                if fraud is not None:
                    self._counts[model, fraud] += by
        card.counted = units
