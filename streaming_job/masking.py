"""What of a card may stand in logs and on screens."""

import re

_NUMBER = re.compile(rb"\d(?:[\x00 .-]{0,2}\d){11,18}")
_CARD_ID = re.compile(rb'("card_id"\s*:\s*")((?:[^"\\]|\\.)*)')


def masked(card: str) -> str:
    """A card id: enough to recognise, not enough to use."""
    return f"{card[:2]}***{card[-2:]}" if len(card) > 6 else "***"


def safe(raw: bytes, most: int | None = None) -> str:
    """Bytes of unknown origin as one line of text that can be shown: card ids and numbers masked.

    Args:
        raw: anything.
        most: characters shown at most; default: all.
    """
    hidden = _NUMBER.sub(b"************", raw)
    hidden = _CARD_ID.sub(
        lambda found: found[1] + masked(found[2].decode("utf-8", "backslashreplace")).encode(), hidden
    )
    text = hidden.decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "\u2026"
