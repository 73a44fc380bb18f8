"""Members of a canary: uniform, independent between model lines, fixed; a larger share only adds cards."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from feature_store.kernels.hashing import hash_string, hash_strings
from models.rollouts.membership import BUCKETS, bucket, salt_of

pytestmark = pytest.mark.unit
CARDS, _ = hash_strings(pa.array([f"card-{number}" for number in range(50_000)]))
SALT = salt_of("card-fraud")
MASK = 2**64 - 1


def fmix64(x: int) -> int:
    """MurmurHash3's finaliser, in plain integers."""
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ (x >> 33)


def is_member(cards: NDArray[np.uint64], salt: str, share_bp: int) -> NDArray[np.bool_]:
    return bucket(cards, salt) < share_bp


def test_bucket_is_the_finalised_hash_of_card_and_salt() -> None:
    result = bucket(CARDS[:500], SALT)
    assert result.tolist() == [
        fmix64(hash_string(f"card-{number}")[0] ^ hash_string(SALT)[0]) % BUCKETS for number in range(500)
    ]
    assert (result.min() >= 0, result.max() < BUCKETS) == (True, True)


def test_buckets_never_change() -> None:
    assert SALT == "card-fraud/card-fraud"
    assert bucket(CARDS[:4], SALT).tolist() == [9730, 2977, 874, 3326]


@pytest.mark.parametrize("share_bp", [1, 100, 1_000, 5_000])
def test_the_share_of_the_cards_is_the_given_one(share_bp: int) -> None:
    p = share_bp / BUCKETS
    members = is_member(CARDS, SALT, share_bp).sum()
    assert abs(members - p * CARDS.size) < 5 * np.sqrt(CARDS.size * p * (1 - p)) + 1


def test_larger_share_only_adds_cards() -> None:
    before = is_member(CARDS, SALT, 0)
    assert not before.any()
    for share_bp in (1, 10, 500, 501, 9_999, 10_000):
        after = is_member(CARDS, SALT, share_bp)
        assert not (before & ~after).any()
        before = after
    assert before.all()


def test_all_buckets_are_used_alike() -> None:
    """Chi-squared over a hundred groups of buckets; 99 degrees of freedom, five standard deviations."""
    counts = np.bincount(bucket(CARDS, SALT) // 100, minlength=100)
    expected = CARDS.size / 100
    assert ((counts - expected) ** 2 / expected).sum() < 99 + 5 * np.sqrt(2 * 99)


def test_model_lines_have_independent_members() -> None:
    both = is_member(CARDS, SALT, 1_000) & is_member(CARDS, salt_of("other"), 1_000)
    assert 0.008 < both.mean() < 0.012


def test_membership_of_a_card_does_not_depend_on_the_others() -> None:
    one_by_one = [bool(is_member(CARDS[row : row + 1], SALT, 3_000)[0]) for row in range(200)]
    assert is_member(CARDS[:200], SALT, 3_000).tolist() == one_by_one
