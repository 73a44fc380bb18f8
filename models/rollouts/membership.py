"""Membership of cards in a canary: sticky, monotone in the share, and the same in every replay.

A card's bucket is a hash of the card and of the model line's salt; the cards in buckets below the share are
members. So two rollouts of a line with the same share have the same members, and a larger share only adds
cards.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.kernels.hashing import hash_string

BUCKETS = 10_000
"""Number of buckets, one per basis point of the share: a share of 100 is one card in a hundred."""


def salt_of(line: str) -> str:
    """Return the salt of a model line, which all its rollouts share."""
    return f"card-fraud/{line}"


def bucket(card_hash: NDArray[np.uint64], salt: str) -> NDArray[np.int64]:
    """Compute the bucket of each card, 0 to 9,999, shape (n,); cards in buckets below the share are members.

    The low half of the card's murmur3 hash is mixed with that of the salt by murmur3's 64-bit finaliser. So
    memberships in different lines are independent, at the cost of a few multiplications per row.

    Args:
        card_hash: low 64 bits of the hashes of the card ids (`feature_store.kernels.hashing`), shape (n,).

    >>> buckets = bucket(np.arange(5, dtype=np.uint64), salt_of("card-fraud"))
    >>> (buckets < 2_000).tolist(), (buckets < 5_000).tolist()  # a larger share only adds members
    ([False, True, False, False, False], [True, True, False, True, False])
    """
    x = card_hash.astype(np.uint64) ^ np.uint64(hash_string(salt)[0])
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    x ^= x >> np.uint64(33)
    return (x % np.uint64(BUCKETS)).astype(np.int64)
