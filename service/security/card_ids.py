"""Card ids in answers: in full for operators and admins, masked for all other callers."""

from collections.abc import Mapping
from typing import Any

from service.security.roles import Caller, Role
from streaming_job.masking import masked

FIELDS = frozenset({"card", "card_id"})


def for_caller(value: Any, caller: Caller | None) -> Any:
    """Mask the card ids in a JSON value at every depth, unless the caller may see them.

    Args:
        value: objects, lists, texts, numbers.
        caller: reader of the answer; None: unknown.
    """
    return value if may_see_cards(caller) else _masked(value)


def may_see_cards(caller: Caller | None) -> bool:
    """Return whether a caller may see card ids."""
    return caller is not None and caller.role >= Role.OPERATOR


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: masked(part) if name in FIELDS and isinstance(part, str) else _masked(part)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(part) for part in value]
    return value
