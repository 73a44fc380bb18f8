"""The oracle's murmur3 against published vectors, and its membership against the job's."""

import numpy as np
import pytest

from feature_store.kernels.hashing import hash_string
from loadtests.oracle.membership import bucket, fmix64, is_member, murmur3, salt_of
from models.rollouts import membership

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("", "00000000000000000000000000000000"),
        ("hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
        ("hello, world", "342fac623a5ebc8e4cdcbc079642414d"),
        ("19 Jan 2038 at 3:14:07 AM", "b89e5988b737affc664fc2950231b2cb"),
        ("The quick brown fox jumps over the lazy dog.", "cd99481f9ee902c9695da1a38987b6e7"),
    ],
)
def test_murmur3_gives_the_published_values(text, digest):
    """Vectors of github.com/spaolacci/murmur3."""
    low, high = murmur3(text.encode())
    assert f"{low:016x}{high:016x}" == digest


def test_finaliser_keeps_zero_and_is_one_to_one_on_samples():
    assert fmix64(0) == 0
    assert len({fmix64(k) for k in range(10_000)}) == 10_000


@pytest.mark.parametrize("length", range(34))
def test_murmur3_equals_the_feature_stores_at_every_length(length):
    text = "".join(chr(33 + at * 7 % 90) for at in range(length)) + "é" * (length % 3)
    assert murmur3(text.encode()) == hash_string(text)


def test_members_equal_the_jobs():
    salt, cards = salt_of("card-fraud"), [f"card-{number}" for number in range(2_000)]
    assert salt == membership.salt_of("card-fraud")
    hashes = np.array([hash_string(card)[0] for card in cards], dtype=np.uint64)
    assert [bucket(card, salt) for card in cards] == membership.bucket(hashes, salt).tolist()
    ours = [is_member(card, salt, 1_000) for card in cards]
    assert ours == (membership.bucket(hashes, salt) < 1_000).tolist()
    assert 150 <= sum(ours) <= 250


def test_larger_share_only_adds_cards_and_another_line_has_others():
    salt, cards = salt_of("card-fraud"), [f"card-{number}" for number in range(2_000)]
    tenth, fifth = ({card for card in cards if is_member(card, salt, share)} for share in (1_000, 2_000))
    assert tenth < fifth
    others = {card for card in cards if is_member(card, salt_of("other"), 1_000)}
    assert 5 <= len(tenth & others) <= 45
