"""Errors of joining alerts with labels."""

from feature_store.errors import FraudError


class UnreadError(FraudError):
    """Alerts and labels cannot be read."""


class OutcomesError(FraudError):
    """The store of the live precision cannot be used now."""
