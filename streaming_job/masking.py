"""Masking of card ids and card numbers for logs and screens."""

import re

from feature_store.printable import printable

_NUMBER = re.compile(rb"\d(?:[\x00 .-]{0,2}\d){11,18}")
# a broken producer may write single quotes, like Python's repr
_CARD_IDS = tuple(re.compile(rb"(Qcard_idQ\s*:\s*Q)((?:[^Q\\]|\\.)*)".replace(b"Q", q)) for q in (b'"', b"'"))
_SHORTEST = 4
"""Length of the shortest card id that `safe` masks wherever it occurs: shorter ones also occur by chance."""


def masked(card: str) -> str:
    """Return a card id with its middle masked; an id of up to 6 characters is masked entirely."""
    return f"{card[:2]}***{card[-2:]}" if len(card) > 6 else "***"


def safe(raw: bytes, most: int | None = None, *, card: bytes | None = None) -> str:
    """Return bytes of unknown origin as one printable line, with card ids and card numbers masked.

    Args:
        most: maximum number of characters; default: all.
        card: a card id to mask wherever it occurs, even without a field name, unless it is shorter than
            _SHORTEST.
    """
    if card is not None and len(card) >= _SHORTEST:
        raw = raw.replace(card, masked(card.decode("utf-8", "backslashreplace")).encode())
    hidden = _NUMBER.sub(b"************", raw)
    for pattern in _CARD_IDS:
        hidden = pattern.sub(
            lambda match: match[1] + masked(match[2].decode("utf-8", "backslashreplace")).encode(), hidden
        )
    text = printable(hidden.decode("utf-8", "backslashreplace"))
    return text if most is None or len(text) <= most else text[: most - 1] + "\u2026"
