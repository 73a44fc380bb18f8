"""Canary membership: a bucket from the hashes of card and salt, compared with the canary's share.

A bucket is the low 64 bits of MurmurHash3 x64 128 of the card id, XORed with those of the salt, then passed
through murmur3's 64-bit finaliser, modulo 10,000. Scalar Python integers after Austin Appleby's reference
(public domain), written independently of the job's vectorised form.
"""

from functools import lru_cache

BUCKETS = 10_000
_64 = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def salt_of(line: str) -> str:
    """Return the salt of a model line."""
    return f"card-fraud/{line}"


def bucket(card_id: str, salt: str) -> int:
    """Return the card's bucket, 0 to 9,999."""
    return fmix64(_low(card_id) ^ _low(salt)) % BUCKETS


def is_member(card_id: str, salt: str, share_bp: int) -> bool:
    """Return whether a canary with this share, in basis points, decides for the card."""
    return bucket(card_id, salt) < share_bp


@lru_cache(1 << 20)
def _low(text: str) -> int:
    return murmur3(text.encode())[0]


def fmix64(k: int) -> int:
    """Apply murmur3's 64-bit finaliser."""
    k ^= k >> 33
    k = k * 0xFF51AFD7ED558CCD & _64
    k ^= k >> 33
    k = k * 0xC4CEB9FE1A85EC53 & _64
    return k ^ (k >> 33)


def murmur3(data: bytes) -> tuple[int, int]:
    """Return the low and the high 64 bits of MurmurHash3 x64 128, with seed 0."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _k1(data[at : at + 8])
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _64
        h2 ^= _k2(data[at + 8 : at + 16])
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _64
    # a missing half of the last 16 bytes is 0, which has no effect
    h1 ^= _k1(data[whole : whole + 8])
    h2 ^= _k2(data[whole + 8 :])
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _64
    h2 = h2 + h1 & _64
    h1, h2 = fmix64(h1), fmix64(h2)
    h1 = h1 + h2 & _64
    return h1, h2 + h1 & _64


def _k1(half: bytes) -> int:
    return _rotated(int.from_bytes(half, "little") * _C1 & _64, 31) * _C2 & _64


def _k2(half: bytes) -> int:
    return _rotated(int.from_bytes(half, "little") * _C2 & _64, 33) * _C1 & _64


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & _64
