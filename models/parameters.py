"""The kinds of parameters that a policy has: which values are valid, and which let less through. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from models.errors import ModelError

DECLINE, REVIEW, IGNORE, SCORE = "decline", "review", "ignore", "score"
"""Actions: what a policy does about a status, or about a missing profile; `score` is to do nothing."""
_FOUND = {DECLINE: 2, REVIEW: 1, IGNORE: 0, SCORE: 0}
"""How much an action finds."""


class Parameter(ABC):
    """One kind of parameter."""

    is_whole = False
    """Whether its values are whole numbers."""

    @abstractmethod
    def check(self, name: str, value: Any) -> None:
        """Refuse a value that makes no sense.

        Raises:
            ModelError: the text begins with the parameter's name.
        """

    @abstractmethod
    def strength(self, value: Any) -> float:
        """Order the values: the greater the result, the less gets through."""


class Probability(Parameter):
    """A probability from which something fires."""

    def check(self, name: str, value: Any) -> None:
        """See `Parameter`."""
        if not 0.0 <= value <= 1.0:
            raise ModelError(f"{name} {value} is no probability; give a number from 0 to 1")

    def strength(self, value: Any) -> float:
        """See `Parameter`."""
        return -float(value)


class Limit(Parameter):
    """The greatest number that is let through; None: any number."""

    is_whole = True

    def __init__(self, refusal: str = "would alert on everything", *, is_optional: bool = True) -> None:
        """Describe the limit.

        Args:
            refusal: what is wrong with a limit below 1.
        """
        self._refusal, self.is_optional = refusal, is_optional

    def check(self, name: str, value: Any) -> None:
        """See `Parameter`."""
        if value is None and not self.is_optional:
            raise ModelError(f"{name} is null, but always applies; give 1 or more")
        if value is not None and value < 1:
            raise ModelError(f"{name} {value} {self._refusal}; give 1 or more")

    def strength(self, value: Any) -> float:
        """See `Parameter`."""
        return float("-inf") if value is None else -float(value)


class Action(Parameter):
    """What is done about some cards, one of several words."""

    def __init__(self, *words: str) -> None:
        self.words: Sequence[str] = words

    def check(self, name: str, value: Any) -> None:
        """See `Parameter`."""
        if value not in self.words:
            words = f"{', '.join(self.words[:-1])} or {self.words[-1]}"
            raise ModelError(f"{name} {value!r} is unknown; give {words}")

    def strength(self, value: Any) -> float:
        """See `Parameter`."""
        return _FOUND[value]


class Seconds(Parameter):
    """A time for which something is held back, whole seconds."""

    is_whole = True

    def __init__(self, most: int, words: str) -> None:
        """Allow 0 to `most`, which `words` says in words."""
        self.most, self._words = most, words

    def check(self, name: str, value: Any) -> None:
        """See `Parameter`."""
        if not 0 <= value <= self.most:
            raise ModelError(f"{name} {value} is out of range; give 0 to {self.most} seconds ({self._words})")

    def strength(self, value: Any) -> float:
        """See `Parameter`."""
        return -float(value)
