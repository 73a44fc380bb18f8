"""Errors of reading alerts and labels."""

from feature_store.errors import FraudError


class UnreadError(FraudError):
    """Alerts and labels cannot be read."""
