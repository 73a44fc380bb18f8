"""The rule `score`: the model's score reaches the threshold. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.rules.rule import Known, KnownBlock, Rule


class Score(Rule):
    """Fires if the score is at least `threshold`; without a score it does not fire."""

    name = "score"

    def fires(self, policy: Any, known: Known) -> bool:
        """See `Rule`."""
        return known.score is not None and bool(known.score >= policy.threshold)

    def rows(self, policy: Any, scores: NDArray[np.float64], known: KnownBlock) -> NDArray[np.bool_]:
        """See `Rule`."""
        fired: NDArray[np.bool_] = scores >= policy.threshold
        return fired

    def sentence(self, alert: Mapping[str, Any]) -> str:
        """See `Rule`."""
        if alert["score"] is None:
            return self.name
        share = alert.get("score_percentile")
        rank = "" if share is None else f", which {share:g} % of the payments do not exceed"
        return f"score {alert['score']:.3f}{rank}; the threshold is {alert['threshold']:.3f}"
