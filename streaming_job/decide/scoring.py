"""Scoring of transactions by champion and challengers.

A champion that cannot run because of the machine stops the group: if the rules decided alone for such a
reason, a replay might decide differently. A challenger's failure never stops the group: where a canary gives
no score the champion decides, and the failure is counted.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models import guarded
from models.registry import ModelRef
from models.scoring import Scorer

log = logging.getLogger(__name__)

LoadModel = Callable[[ModelRef], Scorer]
UNAVAILABLE = "unavailable"
"""Failure of a challenger beside those of `models.guarded`: its model could not be loaded or run."""


@dataclass(frozen=True)
class Answer:
    """The scores of a model for n transactions."""

    scorer: Scorer | None
    """The model; None if it could not be loaded or run."""
    scores: NDArray[np.float64]
    """Shape (n,); NaN where the model failed."""
    failures: dict[int, str]
    """Row -> how the model failed (`models.guarded`, UNAVAILABLE)."""
    ms: float
    """Duration of scoring."""


def score_batch(scorer: Scorer, features: NDArray[np.float64]) -> Answer:
    """Score transactions with a loaded model.

    Args:
        features: shape (n, f).
    """
    begun = time.perf_counter()
    scores, failures = guarded.score(scorer, features)
    return Answer(scorer, scores, failures, 1000 * (time.perf_counter() - begun))


class Challengers:
    """The models of challengers, loaded on demand; one that could not be loaded waits for `try_again`."""

    def __init__(self, load: LoadModel) -> None:
        """Create without loading a model.

        Args:
            load: returns a model's scorer, or raises, without waiting.
        """
        self._load = load
        self._unavailable: set[ModelRef] = set()

    def try_again(self) -> None:
        """Allow models that could not be loaded to be tried again."""
        self._unavailable.clear()

    def scorer(self, model: ModelRef) -> Scorer | None:
        """Return a challenger's scorer; None if it cannot be loaded."""
        if model in self._unavailable:
            return None
        try:
            return self._load(model)
        except Exception as fault:  # whatever it is, the champion's decisions do not depend on it
            log.error("challenger %s %s cannot be loaded to score: %s", model.name, model.version, fault)
            self._unavailable.add(model)
        return None

    def score_batch(self, model: ModelRef, features: NDArray[np.float64]) -> Answer:
        """Score transactions with a challenger; raises nothing.

        Args:
            features: shape (n, f).
        """
        scorer = self.scorer(model)
        if scorer is not None:
            try:
                return score_batch(scorer, features)
            except Exception as fault:  # including faults of the machine, which a champion would raise
                log.error("challenger %s %s fails: %s", model.name, model.version, fault)
        n = len(features)
        return Answer(None, np.full(n, np.nan), dict.fromkeys(range(n), UNAVAILABLE), 0.0)


def explain(
    answer: Answer, features: NDArray[np.float64], *, may_stop: bool
) -> tuple[NDArray[np.float64], list[int]]:
    """Return the contributions of the features to the scores, and the rows without an explanation.

    Args:
        answer: the scores of the model that decided the rows.
        features: features of the rows, all of which have a score, shape (n, f).
        may_stop: whether a fault of the machine is raised, as for a champion.
    """
    assert answer.scorer is not None
    try:
        return guarded.explain(answer.scorer, features)
    except Exception as fault:
        if may_stop:
            raise
        log.error("challenger %s gives no reasons: %s", answer.scorer.name, fault)
    return np.zeros(features.shape), list(range(len(features)))
