"""The form of a rule: when it fires, for one transaction and for many, and its sentence for people. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import COLUMN


@dataclass(frozen=True)
class Known:
    """What is known of one transaction when it is decided."""

    score: float | None
    """Probability of fraud; None or NaN if the model failed."""
    features: Mapping[str, float]
    """Values by feature, this transaction included."""
    status: str | None
    """Status in the card's profile, kept when the profile is deleted; None if none is known."""
    has_profile: bool
    """Whether the card has a profile now, or compaction may have removed the one it had."""


@dataclass(eq=False, slots=True)
class KnownBlock:
    """What is known of n transactions besides their scores; shared by all policies."""

    features: NDArray[np.float64]
    """Shape (n, c); the first columns are those of COLUMN."""
    standing: NDArray[np.uint8]
    """Status of the cards (index into `feature_store.layout.STATUSES`), shape (n,)."""
    without_profile: NDArray[np.bool_]
    """Whether the card has no profile now, and compaction has not removed one, shape (n,)."""
    cache: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Columns that rules have computed, by a name that the rule chooses."""

    def feature(self, name: str) -> NDArray[np.float64]:
        """Return a feature's values, shape (n,)."""
        return self.features[:, COLUMN[name]]


class Rule(ABC):
    """One rule. Policies are given to its methods as `models.policy.Policy`."""

    name: str
    """The rule's name in alerts."""

    @abstractmethod
    def fires(self, policy: Any, known: Known) -> bool:
        """Return whether the rule fires for one transaction: the definition."""

    @abstractmethod
    def rows(self, policy: Any, scores: NDArray[np.float64], known: KnownBlock) -> NDArray[np.bool_] | None:
        """Return whether the rule fires for each of n transactions, shape (n,); None: the policy lacks it.

        Args:
            scores: NaN where the model failed, shape (n,).
            known: what else is known, n rows.
        """

    @abstractmethod
    def sentence(self, alert: Mapping[str, Any]) -> str:
        """Explain why the rule fired for an alert of contract alert.v1."""

    def declines(self, policy: Any) -> bool:
        """Return whether an alert of this rule is a decline by the policy; otherwise it is a review."""
        return False
