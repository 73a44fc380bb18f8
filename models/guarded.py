"""Asks a model whose code is not ours: what it cannot answer is a failure of those rows, not of the stream.

A model fails a row when, asked about that row alone, it raises or gives no probability. A batch that fails as
a whole is therefore halved until the culprits are alone: which rows fail depends on the rows and the model,
not on the batch, and a batch that is run again comes to the same bytes.

Not a failure of the model is what another machine or another minute may mend (memory, files, libraries): that
stops the batch, because rules deciding alone for such a reason would be a decision that no replay repeats.
"""

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import FraudError
from models.errors import ModelError
from models.scoring import Scorer

log = logging.getLogger(__name__)

RAISED = "raised"
"""The model raised an exception."""
NO_PROBABILITY = "no_probability"
"""It gave NaN, a number outside 0 to 1, or something that is not one number."""
UNEXPLAINED = "unexplained"
"""It gave a score, and no contributions to it."""
ENVIRONMENT = (OSError, MemoryError, ImportError)

Ask = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def score(scorer: Scorer, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Probability of fraud of each row.

    Args:
        scorer: the model.
        x: shape (n, f).

    Returns:
        Scores, shape (n,), NaN where the model failed; and for those rows why (RAISED or NO_PROBABILITY).

    Raises:
        ModelError: not the model failed but what it runs on.
    """
    scores = np.full(len(x), np.nan)
    failures: dict[int, str] = {}
    _ask(scorer, scorer.score, x, scores, failures, 0)
    for row in np.flatnonzero(~((scores >= 0.0) & (scores <= 1.0))).tolist():
        failures.setdefault(row, NO_PROBABILITY)
        scores[row] = np.nan
    return scores, failures


def explain(scorer: Scorer, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """What each feature added to the log-odds of each row.

    Args:
        scorer: the model.
        x: shape (n, f), of rows that it could score.

    Returns:
        Contributions, shape (n, f), 0 where the model failed; and the rows where it did.

    Raises:
        ModelError: not the model failed but what it runs on.
    """
    contributions = np.zeros(x.shape)
    failures: dict[int, str] = {}
    _ask(scorer, scorer.explain, x, contributions, failures, 0)
    wrong = ~np.isfinite(contributions).all(axis=1)
    contributions[wrong] = 0.0
    return contributions, sorted({*failures, *np.flatnonzero(wrong).tolist()})


def _ask(
    scorer: Scorer,
    ask: Ask,
    x: NDArray[np.float64],
    out: NDArray[np.float64],
    failures: dict[int, str],
    first: int,
) -> None:
    """Fill `out` with the answers about `x`; `first` is the number of x's first row in `failures`."""
    if not len(x):
        return
    failure = NO_PROBABILITY
    try:
        found = np.asarray(ask(x), dtype=np.float64)
        if found.shape == out.shape:
            out[:] = found
            return
    except FraudError:
        raise
    except ENVIRONMENT as fault:
        raise ModelError(
            f"model {scorer.name} {scorer.version} cannot be run here ({type(fault).__name__}: {fault}); "
            "mend the machine, then start the job again"
        ) from fault
    except Exception as fault:  # whatever a foreign model raises
        failure = RAISED
        if len(x) == 1 and not failures:
            log.warning(
                "model %s %s failed a transaction: %s: %s",
                scorer.name, scorer.version, type(fault).__name__, str(fault)[:200],
            )  # fmt: skip
    if len(x) == 1:
        failures[first] = failure
        return
    half = len(x) // 2
    _ask(scorer, ask, x[:half], out[:half], failures, first)
    _ask(scorer, ask, x[half:], out[half:], failures, first + half)
