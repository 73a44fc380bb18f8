"""The root of all errors that this project raises on purpose, and the exit codes of its programs."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a program, for the supervisor that may start it again."""

    DONE = 0
    """Done, or stopped by SIGTERM or SIGINT."""
    FAILED = 1
    """An error that the last line names. All that was written is whole: start it again after a pause."""
    MISUSED = 2
    """The command line is wrong: correct it."""
    FENCED = 3
    """Another instance has taken the job over: start neither again before one is stopped for good."""

    @property
    def may_restart(self) -> bool:
        """Whether a supervisor should start the program again."""
        return self is ExitCode.FAILED


class FraudError(Exception):
    """An error that the operator can act on.

    The message says what happened, then what to do, in one line; the tail of a log may follow. The command
    line prints the message without a traceback and exits with `exit_code`.
    """

    exit_code = ExitCode.FAILED
