"""The hash of identifiers, which stored state depends on: MurmurHash3 x64 128, seed 0."""

import pyarrow as pa
import pytest

from feature_store.kernels.hashing import hash_string, hash_strings

pytestmark = pytest.mark.unit

MASK = (1 << 64) - 1

# published with the Go port spaolacci/murmur3
VECTORS = [
    ("", 0x0000000000000000, 0x0000000000000000),
    ("hello", 0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19),
    ("hello, world", 0x342FAC623A5EBC8E, 0x4CDCBC079642414D),
    ("19 Jan 2038 at 3:14:07 AM", 0xB89E5988B737AFFC, 0x664FC2950231B2CB),
    ("The quick brown fox jumps over the lazy dog.", 0xCD99481F9EE902C9, 0x695DA1A38987B6E7),
]


@pytest.mark.parametrize(("text", "lo", "hi"), VECTORS)
def test_reference_vectors(text, lo, hi):
    assert hash_string(text) == (lo, hi)


def naive(data: bytes) -> tuple[int, int]:
    """Austin Appleby's algorithm in plain integers."""

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & MASK

    def finish(x: int) -> int:
        x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
        x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
        return x ^ x >> 33

    c1, c2, h1, h2 = 0x87C37B91114253D5, 0x4CF5AD432745937F, 0, 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
        h1 = ((rotate(h1, 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
        h2 = ((rotate(h2, 31) + h1) * 5 + 0x38495AB5) & MASK
    tail = data[whole:].ljust(16, b"\0")
    h2 ^= rotate(int.from_bytes(tail[8:], "little") * c2 & MASK, 33) * c1 & MASK
    h1 ^= rotate(int.from_bytes(tail[:8], "little") * c1 & MASK, 31) * c2 & MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    h1, h2 = finish(h1), finish(h2)
    h1 = (h1 + h2) & MASK
    return h1, (h2 + h1) & MASK


def test_every_length_up_to_three_blocks_equals_the_naive_hash():
    cut = [("Zürich-€-" * 6).encode()[:n].decode(errors="ignore") for n in range(50)]
    # a cut within a character has lost a byte or two
    texts = [text + "x" * (n - len(text.encode())) for n, text in enumerate(cut)]
    assert [len(text.encode()) for text in texts] == list(range(50))
    lo, hi = hash_strings(pa.array(texts))
    assert list(zip(lo.tolist(), hi.tolist(), strict=True)) == [naive(text.encode()) for text in texts]


def test_slice_of_a_column_hashes_as_itself():
    column = pa.array(["a", "bb", "ccc", "dddd"])
    lo, hi = hash_strings(column.slice(1, 2))
    assert list(zip(lo.tolist(), hi.tolist(), strict=True)) == [hash_string("bb"), hash_string("ccc")]


@pytest.mark.parametrize("column", [pa.array([], pa.string()), pa.array(["", ""])])
def test_columns_without_bytes(column):
    lo, hi = hash_strings(column)
    assert lo.tolist() == hi.tolist() == [0] * len(column)
