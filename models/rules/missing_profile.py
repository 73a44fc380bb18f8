"""The rule `missing_profile`: the bank's profile of the card is not known. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parameters import REVIEW
from models.rules.rule import Known, KnownBlock, Rule


class MissingProfile(Rule):
    """Fires if the card has no profile, and the policy's action for such cards is `review`."""

    name = "missing_profile"

    def fires(self, policy: Any, known: Known) -> bool:
        """See `Rule`."""
        return not known.has_profile and policy.missing_profile == REVIEW

    def rows(self, policy: Any, scores: NDArray[np.float64], known: KnownBlock) -> NDArray[np.bool_] | None:
        """See `Rule`."""
        return known.without_profile if policy.missing_profile == REVIEW else None

    def sentence(self, alert: Mapping[str, Any]) -> str:
        """See `Rule`."""
        return "the bank's profile of the card is not known"
