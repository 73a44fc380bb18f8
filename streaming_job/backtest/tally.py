"""The counts of a backtest's transactions: by day, by outcome, and what was refused. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS
from feature_store.layout import currency_name
from streaming_job.backtest.alerts import Alert, alert_of
from streaming_job.backtest.labels import OUTCOMES, HashedLabels
from streaming_job.backtest.window import Window
from streaming_job.decode.transactions import Rejection
from streaming_job.progress.outcome import Outcome


@dataclass
class Tally:
    """What became of the window's transactions."""

    window: Window
    labels: HashedLabels
    whole_from: int = 0
    """Arrival from which all windows of all cards are whole, ms."""
    alerts: list[Alert] = field(default_factory=list)
    """The candidate's alerts that would have been sent."""
    suppressed: int = 0
    """Number of alerts that a cooldown would have suppressed."""
    transactions: Counter[int] = field(default_factory=Counter)
    """Day (since 1970-01-01, UTC) -> number of accepted transactions."""
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(currency, outcome) -> number of accepted transactions with a label."""
    money: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(currency, outcome) -> sum of their amounts, in 1/10,000 of the currency unit."""
    duplicates: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Reason -> number of transactions that are dead letters."""
    cut: int = 0
    """Number of transactions of which a window may lack what happened before the history begins."""
    cut_cards: set[int] = field(default_factory=set)
    """Hashes of their cards."""
    recalled: int = 0
    """Number of transactions before the window, which only brought the state forward."""

    def refuse(self, arrivals: NDArray[np.int64], rejections: Sequence[Rejection]) -> None:
        """Count rejected records.

        Args:
            arrivals: of all records of the batch, ms.
        """
        for rejection in rejections:
            if self.window.since <= arrivals[rejection.row] < self.window.until:
                self.refused[rejection.reason.value] += 1

    def decide(self, batch: NDArray[np.void], accepted: NDArray[np.bool_]) -> None:
        """Count transactions that the candidate has decided.

        Args:
            batch: records of TRANSACTION, shape (n,).
            accepted: whether each was decided, and is no repetition, shape (n,).
        """
        inside = batch["arrival"] < self.window.until
        self.duplicates += int((inside & ~accepted).sum())
        counted = batch[inside & accepted]
        days, numbers = np.unique(counted["arrival"] // DAY_MS, return_counts=True)
        self.transactions.update(dict(zip(days.tolist(), numbers.tolist(), strict=True)))
        cut = counted["lo"][counted["arrival"] < self.whole_from]
        self.cut += cut.size
        self.cut_cards.update(np.unique(cut).tolist())
        codes = self.labels.codes(counted)
        labelled = np.flatnonzero(codes)
        for code, currency, amount in zip(
            codes[labelled].tolist(), counted["currency"][labelled].tolist(),
            counted["amount"][labelled].tolist(), strict=True,
        ):  # fmt: skip
            key = currency_name(currency), OUTCOMES[code]
            self.outcomes[key] += 1
            self.money[key] += amount

    def alert(self, outcome: Outcome) -> None:
        """Add the alerts of decided transactions."""
        for record in outcome.records["fraud_alerts"]:
            alert = alert_of(orjson.loads(record.value))
            if alert.arrival < self.window.until:
                self.alerts.append(alert)
        for record in outcome.records["suppressed_alerts"]:
            self.suppressed += orjson.loads(record.value)["arrival_time"] < self.window.until

    def add(self, other: "Tally") -> None:
        """Add the counts of other partitions."""
        self.alerts += other.alerts
        self.suppressed += other.suppressed
        self.duplicates += other.duplicates
        self.recalled += other.recalled
        self.cut += other.cut
        self.cut_cards |= other.cut_cards
        for name in ("transactions", "outcomes", "money", "refused"):
            getattr(self, name).update(getattr(other, name))
