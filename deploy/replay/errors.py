"""The error of a replay."""

from feature_store.errors import FraudError


class ReplayError(FraudError):
    """A replay cannot be planned, started, compared, switched or dropped.

    The message says what to do; docs/replay.md describes the commands, each of which may be repeated.
    """
