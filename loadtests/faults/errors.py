"""Error of fault injection."""

from feature_store.errors import FraudError


class FaultError(FraudError):
    """The system did not survive a fault as required, the fault could not be provoked, or a game day failed.

    Unless the message names something that is missing (root privileges, brokers), this is a defect: keep the
    data directory and run `fraud verify`.
    """
