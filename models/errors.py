"""Errors of models, registry and rollouts."""

from collections.abc import Iterator
from contextlib import contextmanager

from feature_store.errors import FraudError


class ModelError(FraudError):
    """A model cannot be trained, registered, found, trusted or used."""

    check = ""
    """Name of the failed check; empty unless `naming` has set it."""


class ModelUnavailableError(ModelError):
    """The registry or a model's files cannot be reached now; a later attempt may succeed."""


class ModelMissingError(ModelError):
    """The registry has no such model."""


@contextmanager
def naming(check: str) -> Iterator[None]:
    """Set `check` on each ModelError raised inside the block, unless it is set already."""
    try:
        yield
    except ModelError as fault:
        fault.check = fault.check or check
        raise


class GuardError(ModelError):
    """Guards of a rollout, or the counts that they judge, are invalid.

    Args:
        path: path of the invalid value in the JSON object of the guards, as `("rules", 0, "max_ratio")`;
            empty for counts.
    """

    def __init__(self, text: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(text)
        self.path = path
