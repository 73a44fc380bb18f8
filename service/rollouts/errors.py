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
    """The change is invalid: a check of its model, policy, guards or actor failed."""


class UnknownError(DeskError):
    """There is no such rollout or model."""

    status = 404


class StaleError(DeskError):
    """The change does not fit the current state of the rollout."""

    status = 409


class FencedError(StaleError):
    """Another writer of rollouts was opened, and nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "race", "another writer was opened meanwhile, nothing was written; repeat the request"
        )


class UnansweredError(DeskError):
    """Brokers or registry did not answer; repeat the change to learn whether it was written."""

    status = 503
