"""Errors of the desk: each names the failed check."""

from feature_store.errors import FraudError


class DeskError(FraudError):
    """A request to the desk failed."""

    status = 422
    """Status of the HTTP answer."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(text)
        self.check = check
        """Name of the failed check; `code` in the problem details of the HTTP answer."""


class RefusedError(DeskError):
    """A check of the change failed, for example of its model, policy, guards, key or actor."""


class ForbiddenError(DeskError):
    """The role of the caller is not enough for what the change would do."""

    status = 403


class UnknownError(DeskError):
    """There is no such rollout, model or transaction."""

    status = 404


class StaleError(DeskError):
    """The current state of the rollouts does not allow the change, or another writer is at work."""

    status = 409


class FencedError(StaleError):
    """Another writer of rollouts was opened, and nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "race", "another writer was opened meanwhile, nothing was written; repeat the request"
        )


class UnansweredError(DeskError):
    """Brokers or registry did not answer, no registry is set, or a search reached a limit.

    Repeat a change with the same idempotency key: the answer says whether it was written before.
    """

    status = 503
