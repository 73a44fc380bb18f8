"""What of a card may stand in logs and on screens."""

import re

_NUMBER = re.compile(rb"\d(?:[\x00 .-]{0,2}\d){11,18}")
# a broken producer may quote as Python does
_CARD_IDS = tuple(re.compile(rb"(Qcard_idQ\s*:\s*Q)((?:[^Q\\]|\\.)*)".replace(b"Q", q)) for q in (b'"', b"'"))
_SHORTEST = 4
"""A shorter key is found in too much that it has nothing to do with."""


def masked(card: str) -> str:
    """A card id: enough to recognise, not enough to use."""
    return f"{card[:2]}***{card[-2:]}" if len(card) > 6 else "***"


def safe(raw: bytes, most: int | None = None, *, card: bytes | None = None) -> str:
    """Bytes of unknown origin as one line of text that can be shown: card ids and numbers masked.

    Args:
        raw: anything.
        most: characters shown at most; default: all.
        card: a card id to mask wherever it stands, in a record that does not say that it is one.
    """
    if card is not None and len(card) >= _SHORTEST:
        raw = raw.replace(card, masked(card.decode("utf-8", "backslashreplace")).encode())
    hidden = _NUMBER.sub(b"************", raw)
    for pattern in _CARD_IDS:
        hidden = pattern.sub(
            lambda found: found[1] + masked(found[2].decode("utf-8", "backslashreplace")).encode(), hidden
        )
    text = hidden.decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "\u2026"
