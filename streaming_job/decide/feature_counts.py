"""Counts of the champion's features in its training bins, to measure their drift; state of a key group.

Counting begins when a model becomes champion, and continues if a rollout changes only the champion's policy.
The newest two clock hours of arrival are counted separately. Which transactions are counted depends on the
log alone, not on how its records are divided into batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS
from models.feature_bins import SAMPLED, FeatureBins
from models.rollouts.state import Plan
from models.scoring import Scorer
from streaming_job.decide.distinct import distinct

HOURS = 2
"""Maximum number of clock hours of arrival that are counted separately: the newest that have counts."""


@dataclass
class FeatureCounts:
    """Counts of the transactions that the champion scored, one in SAMPLED, by feature and bin."""

    reign: int = -1
    """Number of the plan with which the model became champion; -1: not known (yet)."""
    model: Mapping[str, str] = field(default_factory=dict)
    """The model's name, version and digest; empty if the model has no bins: then nothing is counted."""
    features: tuple[str, ...] = ()
    """Names of the model's f features."""
    trained: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Training transactions by bin (`FeatureBins.trained`), shape (f, b)."""
    older: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Counts of all hours before those counted separately, shape (f, b)."""
    hours: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """Clock hour of arrival (since 1970-01-01 UTC) -> counts, shape (f, b); at most HOURS entries."""

    def add(
        self,
        plans: Sequence[Plan],
        number: int,
        scorer: Scorer,
        features: NDArray[np.float64],
        block: NDArray[np.void],
    ) -> None:
        """Count transactions that a champion scored.

        Args:
            plans: the plans that are or were in force.
            number: index of the champion's plan.
            features: all features of the transactions, shape (n, c).
            block: records of TRANSACTION, shape (n,).
        """
        reign = self._first(plans, number)
        if reign < self.reign or not block.size:
            return
        if reign > self.reign:
            self._begin(reign, scorer)
        if scorer.bins is not None:
            self._count(scorer.bins, features, block["arrival"] // HOUR_MS, block["transaction"])

    def include(self, other: "FeatureCounts") -> None:
        """Add the counts of another key group; only those of the newer reign are kept."""
        if other.reign > self.reign:
            self.reign, self.model, self.features = other.reign, other.model, other.features
            self.trained, self.older, self.hours = other.trained, other.older, dict(other.hours)
        elif other.reign == self.reign and other.model == self.model:
            self.older = self.older + other.older
            for hour, counts in other.hours.items():
                self.hours[hour] = self.hours.get(hour, 0) + counts
            while len(self.hours) > HOURS:
                self.older = self.older + self.hours.pop(min(self.hours))

    def _first(self, plans: Sequence[Plan], number: int) -> int:
        """Return the number of the plan with which a plan's champion became champion."""
        known = plans[self.reign].champion.model if 0 <= self.reign < len(plans) else None
        if self.model and (known is None or known.digest != self.model["digest"]):
            # `plans` leaves out champions whose features this release of the job does not compute, so another
            # release may have numbered the plans differently
            self.reign = -1
        digest = plans[number].champion.model.digest
        while number and plans[number - 1].champion.model.digest == digest:
            number -= 1
        return number

    def _begin(self, reign: int, scorer: Scorer) -> None:
        self.reign, self.model, self.features, self.hours = reign, {}, (), {}
        self.trained = self.older = np.zeros((0, 0), np.int64)
        if scorer.bins is None:
            return
        self.model = {"name": scorer.name, "version": scorer.version, "digest": scorer.digest}
        self.features = tuple(scorer.feature_names[column] for column in scorer.bins.columns.tolist())
        self.trained = scorer.bins.trained
        self.older = np.zeros_like(self.trained)

    def _count(
        self,
        bins: FeatureBins,
        features: NDArray[np.float64],
        hours: NDArray[np.int64],
        transactions: NDArray[np.uint64],
    ) -> None:
        for hour in (several := distinct(hours)):
            mine = slice(None) if len(several) == 1 else hours == hour  # one hour: nothing is copied
            bins.add(features[mine], transactions[mine], self._of(hour))

    def _of(self, hour: int) -> NDArray[np.int64]:
        """Return the counts of an hour, which the caller adds to."""
        if hour not in self.hours:
            self.hours[hour] = np.zeros_like(self.trained)
            if len(self.hours) > HOURS:
                oldest = min(self.hours)
                if oldest == hour:
                    del self.hours[hour]
                    return self.older
                self.older += self.hours.pop(oldest)
        return self.hours[hour]

    def to_json(self) -> dict[str, Any] | None:
        """Return the progress record's `feature_counts`, with numpy arrays; None if nothing is counted."""
        if not self.model:
            return None
        newest = max(self.hours, default=0)
        recent = [counts for hour, counts in self.hours.items() if hour > newest - HOURS]
        return {
            "model": self.model,
            "sampled": SAMPLED,
            "hour": newest,
            "features": self.features,
            "trained": self.trained,
            "counts": sum(self.hours.values(), start=self.older),
            "recent": sum(recent, start=np.zeros_like(self.older)),
        }

    def encode(self) -> bytes:
        """Encode as bytes for the state."""
        kept = {
            "reign": self.reign,
            "model": self.model,
            "features": self.features,
            "trained": self.trained,
            "older": self.older,
            "hours": {str(hour): counts for hour, counts in sorted(self.hours.items())},
        }
        return orjson.dumps(kept, option=orjson.OPT_SERIALIZE_NUMPY)

    @staticmethod
    def decode(blob: bytes) -> "FeatureCounts":
        """Inverse of `encode`."""
        kept = orjson.loads(blob)
        return FeatureCounts(
            kept["reign"],
            kept["model"],
            tuple(kept["features"]),
            _counts(kept["trained"]),
            _counts(kept["older"]),
            {int(hour): _counts(counts) for hour, counts in kept["hours"].items()},
        )


def _counts(rows: list[list[int]]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64) if rows else np.zeros((0, 0), np.int64)
