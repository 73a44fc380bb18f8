"""The rules `blocked_card` and `closed_card`: the card is, by the bank's profile, blocked or closed. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import BLOCKED, CLOSED
from models.parameters import DECLINE, IGNORE
from models.rules.rule import Known, KnownBlock, Rule

_STATUSES = {"blocked": BLOCKED, "closed": CLOSED}


class Standing(Rule):
    """Fires if the card has the status, unless the policy's action for it is `ignore`."""

    def __init__(self, status: str) -> None:
        """Create the rule of a status, which is also the name of its field in the policy."""
        self.name, self._status, self._index = f"{status}_card", status, _STATUSES[status]

    def fires(self, policy: Any, known: Known) -> bool:
        """See `Rule`."""
        return known.status == self._status and getattr(policy, self._status) != IGNORE

    def rows(self, policy: Any, scores: NDArray[np.float64], known: KnownBlock) -> NDArray[np.bool_] | None:
        """See `Rule`."""
        if getattr(policy, self._status) == IGNORE:
            return None
        fired: NDArray[np.bool_] = known.standing == self._index
        return fired

    def sentence(self, alert: Mapping[str, Any]) -> str:
        """See `Rule`."""
        return f"the card is {self._status}"

    def declines(self, policy: Any) -> bool:
        """See `Rule`."""
        return bool(getattr(policy, self._status) == DECLINE)
