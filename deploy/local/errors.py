"""The error of the embedded stack."""

from feature_store.errors import FraudError


class StackError(FraudError):
    """A part of the embedded stack could not be fetched, started, found or kept alive."""
