"""The cards that a continuing audit decides again: a share of all, by hash, the same in every run."""

import json
import re
from hashlib import blake2b

_CARD = re.compile(rb'"card_id"[ \t\r\n]*:[ \t\r\n]*"([^"]*)"')


class Sample:
    """A share of the cards, and of the places of the log, which stand for what belongs to no card.

    The hash is not that of a canary's membership, so members are in the sample as often as other cards.

    Args:
        share: above 0, up to 1.
    """

    def __init__(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"a share of {share} is not above 0 and up to 1")
        self.share = share
        self._below = round(share * 2**64)

    def has_card(self, card_id: str) -> bool:
        """Whether the card is decided again."""
        return self._has(card_id)

    def has_place(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the record there, should it be refused, is audited."""
        return self._has(f"{topic}\0{partition}\0{offset}")

    def _has(self, name: str) -> bool:
        found = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=b"fraud-audit").digest()
        return int.from_bytes(found, "big") < self._below

    def may_have(self, value: bytes | None) -> bool:
        """Whether a transaction or a profile may be of a card of the sample, at a glance; no means no.

        A record with no card, or with several, or with anything escaped, may be.
        """
        if value is None or b"\\" in value or value.count(b'"card_id"') != 1:
            return True
        found = _CARD.search(value)
        if found is None:
            return True
        try:
            return self._has(found[1].decode())
        except UnicodeDecodeError:
            return True

    def has_alert(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether an alert is of a card of the sample, by its content or its key; what is no alert is."""
        try:
            card_id = json.loads(value or b"")["card_id"]
        except (ValueError, KeyError, TypeError):
            return True
        if not isinstance(card_id, str) or self._has(card_id):
            return True
        return self._has((key or b"").decode("utf-8", "replace"))
