"""Text of unknown origin for terminals."""


def printable(text: str) -> str:
    """Return a text as one line, each character that moves a terminal's cursor, or colours, as an escape.

    Escaped are control characters, line ends, and characters that change the direction of writing.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
