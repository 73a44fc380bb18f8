"""What models say of transactions; a challenger's failures are its own, whatever they are.

A champion that cannot be run because of the machine stops the group: rules deciding alone for such a reason
would be a decision that no replay repeats. A challenger never does: where it gives no score the champion
decides, and the failure is counted.
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
"""How a challenger failed beside `models.guarded`: its model could not be loaded, or not be run here."""


@dataclass(frozen=True)
class Answer:
    """What a model said about n transactions."""

    scorer: Scorer | None
    """None if it could not be loaded."""
    scores: NDArray[np.float64]
    """Shape (n,); NaN where it failed."""
    failures: dict[int, str]
    """Row -> how it failed (`models.guarded`, UNAVAILABLE)."""
    ms: float
    """How long it took."""


def ask(scorer: Scorer, features: NDArray[np.float64]) -> Answer:
    """Ask a champion.

    Args:
        scorer: the model.
        features: shape (n, f).

    Raises:
        ModelError: not the model failed but what it runs on.
    """
    begun = time.perf_counter()
    scores, failures = guarded.score(scorer, features)
    return Answer(scorer, scores, failures, 1000 * (time.perf_counter() - begun))


class Challengers:
    """Models of challengers, as far as they can be had."""

    def __init__(self, load: LoadModel) -> None:
        """Nothing is loaded.

        Args:
            load: gives a model's scorer at once, or says that it cannot.
        """
        self._load = load
        self._lost: set[ModelRef] = set()

    def try_again(self) -> None:
        """Ask again for those that could not be had; between, nothing waits for them."""
        self._lost.clear()

    def scorer(self, model: ModelRef) -> Scorer | None:
        """A challenger's scorer; None if it cannot be had."""
        if model in self._lost:
            return None
        try:
            return self._load(model)
        except Exception as fault:  # whatever it is, the champion's decisions do not depend on it
            log.error("challenger %s %s cannot be loaded, and fails: %s", model.name, model.version, fault)
            self._lost.add(model)
        return None

    def ask(self, model: ModelRef, features: NDArray[np.float64]) -> Answer:
        """Ask a challenger; raises nothing.

        Args:
            model: the challenger's.
            features: shape (n, f).
        """
        scorer = self.scorer(model)
        if scorer is not None:
            try:
                return ask(scorer, features)
            except Exception as fault:  # what would stop the group for a champion
                log.error("challenger %s %s fails: %s", model.name, model.version, fault)
        n = len(features)
        return Answer(None, np.full(n, np.nan), dict.fromkeys(range(n), UNAVAILABLE), 0.0)


def explain(
    answer: Answer, features: NDArray[np.float64], *, may_stop: bool
) -> tuple[NDArray[np.float64], list[int]]:
    """What each feature added to the score of rows, and the rows without an explanation.

    Args:
        answer: of the model that decided them.
        features: of the rows, all of which have a score, shape (n, f).
        may_stop: whether a fault of the machine is an error, as of a champion.

    Raises:
        ModelError: not the model failed but what it runs on.
    """
    assert answer.scorer is not None
    try:
        return guarded.explain(answer.scorer, features)
    except Exception as fault:
        if may_stop:
            raise
        log.error("challenger %s gives no reasons: %s", answer.scorer.name, fault)
    return np.zeros(features.shape), list(range(len(features)))
