"""Errors of load tests."""

from feature_store.errors import FraudError


class LoadTestError(FraudError):
    """The load test cannot be run."""


class LoadTestFailed(FraudError):  # noqa: N818 - a verdict, not an error of the program
    """The load test ran, and at least one of its conditions failed."""
