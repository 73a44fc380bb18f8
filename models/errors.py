"""Errors of models, registry and rollouts."""

from feature_store.errors import FraudError


class ModelError(FraudError):
    """A model cannot be trained, registered, found, trusted or used."""
