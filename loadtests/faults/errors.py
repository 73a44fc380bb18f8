"""Error of fault injection."""

from feature_store.errors import FraudError


class FaultError(FraudError):
    """The system did not survive a fault as required, or the fault could not be injected."""
