"""Errors of models, registry and rollouts."""

from feature_store.errors import FraudError


class ModelError(FraudError):
    """A model cannot be trained, registered, found, trusted or used."""


class ModelUnavailableError(ModelError):
    """A model's files cannot be had now; in a minute they may be there."""


class ModelMissingError(ModelError):
    """The registry answers that there is no such model."""
