"""Calls to a third-party model, in which a failure affects single rows and does not stop the stream.

A model fails a row if it returns no probability for the row, or if, given that row alone, it raises or
returns an array of a wrong shape. A batch for which it raises or returns a wrong shape is therefore halved
until the failing rows are alone. The set of failing rows thus depends on the rows and the model, not on the
batch, and a retried batch produces the same bytes.

Errors that another machine or a later attempt may not have (memory, files, libraries) are not failures of the
model. They stop the batch. The policy's rules alone decide a row that the model fails; if they did so
after such an error, a replay on a sound machine would have a score, and might decide differently.
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
"""The model raised an exception, or its result cannot be converted to numbers."""
NO_PROBABILITY = "no_probability"
"""The model returned NaN, a number outside 0 to 1, or not one number per row."""
UNEXPLAINED = "unexplained"
"""The model returned a score, but no contributions to it."""
ENVIRONMENT = (OSError, MemoryError, ImportError)

Call = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def score(scorer: Scorer, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Score the probability of fraud of each row.

    Args:
        x: shape (n, f).

    Returns:
        Scores, shape (n,), NaN where the model failed; and failed row -> RAISED or NO_PROBABILITY.

    Raises:
        ModelError: the environment failed, not the model.
    """
    scores = np.full(len(x), np.nan)
    failures: dict[int, str] = {}
    _call_in_halves(scorer, scorer.score, x, scores, failures, 0)
    for row in np.flatnonzero(~((scores >= 0.0) & (scores <= 1.0))).tolist():
        failures.setdefault(row, NO_PROBABILITY)
        scores[row] = np.nan
    return scores, failures


def explain(scorer: Scorer, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """Compute the contribution of each feature to the log-odds of each row.

    Args:
        x: shape (n, f), rows that the model scored.

    Returns:
        Contributions, shape (n, f), 0 where the model failed; and the failed rows.

    Raises:
        ModelError: the environment failed, not the model.
    """
    contributions = np.zeros(x.shape)
    failures: dict[int, str] = {}
    _call_in_halves(scorer, scorer.explain, x, contributions, failures, 0)
    invalid = ~np.isfinite(contributions).all(axis=1)
    contributions[invalid] = 0.0
    return contributions, sorted({*failures, *np.flatnonzero(invalid).tolist()})


def _call_in_halves(
    scorer: Scorer,
    call: Call,
    x: NDArray[np.float64],
    out: NDArray[np.float64],
    failures: dict[int, str],
    first: int,
) -> None:
    """Fill `out` with the results for `x`; `first` is the row number of `x[0]` in `failures`."""
    if not len(x):
        return
    failure = NO_PROBABILITY
    try:
        result = np.asarray(call(x), dtype=np.float64)
        if result.shape == out.shape:
            out[:] = result
            return
    except FraudError:
        raise
    except ENVIRONMENT as fault:
        raise ModelError(
            f"model {scorer.name} {scorer.version} cannot be run here ({type(fault).__name__}: {fault}); "
            "repair the machine, then start the job again"
        ) from fault
    except Exception as fault:  # a foreign model may raise anything
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
    _call_in_halves(scorer, call, x[:half], out[:half], failures, first)
    _call_in_halves(scorer, call, x[half:], out[half:], failures, first + half)
