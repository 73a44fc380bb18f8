"""Errors of models, registry and rollouts."""

from collections.abc import Iterator
from contextlib import contextmanager

from feature_store.errors import FraudError


class ModelError(FraudError):
    """A model cannot be trained, registered, found, trusted or used, or lacks memory, a file or a library.

    Never change the registry's files by hand; [security](security.md) lists what a model's files may contain.
    """

    check = ""
    """Name of the failed check; empty unless `naming` has set it."""


class ModelUnavailableError(ModelError):
    """The registry does not answer, or its files cannot be copied; the job has retried for a minute.

    The job ends only if no other model may decide. Repair registry, network or disk, and start again; or
    withdraw the rollout `--from-the-beginning`.
    """


class ModelMissingError(ModelError):
    """The registry has no such model or version.

    See `fraud models list`. If the rollout in force needs it: copy the model's files back, or run `fraud
    rollouts step ROLLOUT withdraw --from-the-beginning`.
    """


@contextmanager
def naming(check: str) -> Iterator[None]:
    """Set `check` on each ModelError raised inside the block, unless it is set already."""
    try:
        yield
    except ModelError as fault:
        fault.check = fault.check or check
        raise


class GuardError(ModelError):
    """Guards of a rollout are invalid, or the counts or the evidence that a guard judges.

    Correct the place that the message names ([rollouts](rollouts.md)).
    """

    def __init__(self, text: str, path: tuple[str | int, ...] = ()) -> None:
        """Keep `path` of the value in the JSON object, as `("rules", 0, "max_ratio")`; empty for counts."""
        super().__init__(text)
        self.path = path
