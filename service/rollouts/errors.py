"""Refusals of the desk: each names the check that was not passed."""

from feature_store.errors import FraudError


class DeskError(FraudError):
    """A change of a rollout was not written."""

    status = 422
    """Of the HTTP answer."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(text)
        self.check = check
        """Name of the check, the problem's `code`."""


class RefusedError(DeskError):
    """The change itself cannot be taken: a check of its model, policy, guards or actor failed."""


class UnknownError(DeskError):
    """There is no such rollout or model."""

    status = 404


class StaleError(DeskError):
    """The change does not fit the rollout as it is now, or another writer came in between."""

    status = 409


class UnansweredError(DeskError):
    """Brokers or registry did not answer; whether a change was written is known after its repetition."""

    status = 503
