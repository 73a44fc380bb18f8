"""The sample of a continuous audit: a share of the cards, chosen by hash, the same in every run."""

import re
from hashlib import blake2b

from loadtests.audit.content import content_of

_CARD = re.compile(rb'"card_id"[ \t\r\n]*:[ \t\r\n]*"([^"]*)"')


class Sample:
    """A share of the cards, chosen by id, and of the refused records, chosen by (topic, partition, offset).

    The hash differs from that of canary membership, so members are in the sample as often as other cards.

    Args:
        share: share of the cards, above 0, up to 1.
    """

    def __init__(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"a share of {share} is out of range; give a number above 0, at most 1")
        self.is_everything = share == 1
        self._below = round(share * 2**64)

    def has_card(self, card_id: str) -> bool:
        """Return whether the card is in the sample."""
        return self._has(card_id)

    def has_place(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether the record at this offset is audited if it is refused."""
        return self._has(f"{topic}\0{partition}\0{offset}")

    def _has(self, name: str) -> bool:
        if self.is_everything:  # an audit of everything does not pay for the choice
            return True
        digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=b"fraud-audit").digest()
        return int.from_bytes(digest, "big") < self._below

    def may_have(self, value: bytes | None) -> bool:
        """Return whether a transaction or profile may be of a card of the sample: cheap, no false negatives.

        True for a record with no card id, with several card ids, with escaped characters, or framed.
        """
        if self.is_everything or value is None or value.startswith(b"\0"):
            return True
        if b"\\" in value or value.count(b'"card_id"') != 1:
            return True
        match = _CARD.search(value)
        if match is None:
            return True
        try:
            return self._has(match[1].decode())
        except UnicodeDecodeError:
            return True

    def has_alert(self, key: bytes | None, value: bytes | None) -> bool:
        """Return whether an alert is of a card of the sample, by value or key; True for a malformed alert."""
        if self.is_everything:
            return True
        try:
            card_id = content_of(value)["card_id"]
        except (ValueError, KeyError, TypeError):
            return True
        if not isinstance(card_id, str) or self._has(card_id):
            return True
        return self._has((key or b"").decode("utf-8", "replace"))
