"""Errors of the input topics."""

from feature_store.errors import FraudError

PATIENCE_S = 120.0
"""Time for which brokers may be unreachable, or a partition unreadable, before the job ends."""


class LogError(FraudError):
    """Records that should be on an input topic cannot be read."""
