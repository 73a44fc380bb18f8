"""The root of all errors that this project raises on purpose."""


class FraudError(Exception):
    """An error that the operator can act on.

    The message says what happened, then what to do, in one line; the tail of a log may follow. The command
    line prints the message without a traceback and exits with `exit_code`.
    """

    exit_code = 1
