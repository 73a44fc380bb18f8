"""The rules `velocity_1m`, `velocity_5m`, `velocity_1h`: too many transactions in a window. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.rules.rule import Known, KnownBlock, Rule
from models.sentences.features import WORDS
from models.sentences.quantities import plural


class Velocity(Rule):
    """Fires if the card has more transactions in the window than `max_count_<window>`, unless that is None.

    They are counted by event time and by arrival, and the greater count is compared, so that no sender's
    clock hides a burst.
    """

    def __init__(self, window: str) -> None:
        self.name, self._window, self._limit = f"velocity_{window}", window, f"max_count_{window}"
        self._counts = (f"count_{window}", f"arrivals_{window}")

    def fires(self, policy: Any, known: Known) -> bool:
        """See `Rule`."""
        limit = getattr(policy, self._limit)
        return limit is not None and max(known.features[name] for name in self._counts) > limit

    def rows(self, policy: Any, scores: NDArray[np.float64], known: KnownBlock) -> NDArray[np.bool_] | None:
        """See `Rule`."""
        limit = getattr(policy, self._limit)
        if limit is None:
            return None
        counts = known.cache.get(self.name)
        if counts is None:
            counts = known.cache[self.name] = np.maximum(*map(known.feature, self._counts))
        fired: NDArray[np.bool_] = counts > float(limit)
        return fired

    def sentence(self, alert: Mapping[str, Any]) -> str:
        """See `Rule`."""
        values = [alert["features"].get(name) for name in self._counts]
        count = max((value for value in values if value is not None), default=None)
        payments = "payments" if count is None else plural(count, "payment")
        return f"{payments} in {WORDS[self._window]}, more than the policy allows"
