"""Errors of the desk: each names the failed check."""

from feature_store.errors import FraudError


class DeskError(FraudError):
    """A request about rollouts failed; `check`, the name of the failed check, is the answer's `code`."""

    status = 422
    """Status of the HTTP answer."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(text)
        self.check = check
        """Name of the failed check; `code` in the problem details of the HTTP answer."""


class RefusedError(DeskError):
    """A check of the change failed, for example of its model, policy, guards, key or actor."""


class ForbiddenError(DeskError):
    """The caller's role is not enough for what the change would do.

    Ask an admin; see [authority](rollouts.md#authority).
    """

    status = 403


class UnknownError(DeskError):
    """There is no such rollout, model or transaction.

    See `fraud rollouts show`, `fraud models list`.
    """

    status = 404


class StaleError(DeskError):
    """The rollout has another seq, its state does not allow the step, or an open transaction hides the end.

    Read the rollout, then decide again.
    """

    status = 409


class FencedError(StaleError):
    """Six attempts to write an event failed, as other writers were opened meanwhile; nothing was written.

    Repeat the request.
    """

    def __init__(self) -> None:
        super().__init__(
            "race", "another writer was opened meanwhile, nothing was written; repeat the request"
        )


class UnansweredError(DeskError):
    """Brokers or registry did not answer, no registry is set, or a search has too much to read.

    Repeat the request: a change with the same idempotency key, a search with a later `since`.
    """

    status = 503
