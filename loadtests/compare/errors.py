"""What can go wrong in a comparison."""

from feature_store.errors import FraudError


class CompareError(FraudError):
    """The comparison cannot be made, or the engines did not do the same job."""
