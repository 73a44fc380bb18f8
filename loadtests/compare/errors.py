"""Errors of a comparison."""

from feature_store.errors import FraudError


class CompareError(FraudError):
    """The comparison cannot be run, or the engines' alerts differ."""
