"""Errors of the live precision."""

from feature_store.errors import FraudError


class OutcomesError(FraudError):
    """The store of the live precision cannot be used now."""
