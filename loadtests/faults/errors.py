"""What ends a run of faults."""

from feature_store.errors import FraudError


class FaultError(FraudError):
    """A fault was not survived as it has to be, or could not be brought about."""
