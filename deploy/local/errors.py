"""The errors of the embedded stack and of child processes."""

from feature_store.errors import FraudError


class StackError(FraudError):
    """A part of the embedded stack is missing or has failed, or a port or disk space is not free."""


class ProcessError(FraudError):
    """A child process of a tool cannot be started, ended too early, is not ready in time, or does not end.

    See the log that the message names; the message has its end.
    """
