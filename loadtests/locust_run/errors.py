"""What can go wrong with a load test."""

from feature_store.errors import FraudError


class LoadTestError(FraudError):
    """The load test cannot be run."""


class LoadTestFailed(FraudError):  # noqa: N818 - a verdict, not a fault of the program
    """The load test was run, and something that it measured is out of bounds."""
