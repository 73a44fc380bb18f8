"""Errors of load tests."""

from feature_store.errors import FraudError


class LoadTestError(FraudError):
    """A load test cannot be run."""


class LoadTestFailed(FraudError):  # noqa: N818 - a verdict, not an error of the program
    """A load test was run, and a measurement is out of bounds."""
