"""The errors of the embedded stack and of child processes."""

from feature_store.errors import FraudError


class StackError(FraudError):
    """A part of the embedded stack could not be fetched, found or kept alive."""


class ProcessError(FraudError):
    """A child process cannot be started, ended too early, is not ready in time, or does not end."""
