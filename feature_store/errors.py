"""The root of all errors that this project raises on purpose."""


class FraudError(Exception):
    """An error that the operator can act on.

    The message is one line: what happened, then what to do. The command line prints it without a
    traceback and exits with `exit_code`.
    """

    exit_code = 1
