"""Error of fault injection."""

from feature_store.errors import FraudError


class FaultError(FraudError):
    """The job did not survive a fault, or the fault could not be injected."""
