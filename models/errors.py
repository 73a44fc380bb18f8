"""Errors of models, registry and rollouts."""

from feature_store.errors import FraudError


class ModelError(FraudError):
    """A model cannot be trained, registered, found, trusted or used."""


class ModelUnavailableError(ModelError):
    """A model's files cannot be had now; in a minute they may be there."""


class ModelMissingError(ModelError):
    """The registry answers that there is no such model."""


class GuardError(ModelError):
    """Guards of a rollout, or the counts that they judge, are not what they should be.

    Args:
        text: what is wrong and what to do.
        path: of the value in the guards' object, as `("rules", 0, "max_ratio")`; empty for counts.
    """

    def __init__(self, text: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(text)
        self.path = path
