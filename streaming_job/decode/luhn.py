"""Finds card numbers where tokens should be: `strict.check_card_number` of many at once."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.jit import njit
from streaming_job.decode import columns
from streaming_job.decode.grammar import Bytes
from streaming_job.decode.plain import SEPARATOR
from streaming_job.decode.strict import LONGEST_CARD_NUMBER, SHORTEST_CARD_NUMBER


@njit(cache=True, nogil=True)
def _find(quotes: Bytes, offsets: NDArray[np.int32], found: NDArray[np.bool_]) -> None:
    for row in range(found.size):
        start, end = offsets[row], offsets[row + 1]
        close = start
        while close < end and close - start <= LONGEST_CARD_NUMBER and 0x30 <= quotes[close] <= 0x39:
            close += 1
        length = close - start
        found[row] = SHORTEST_CARD_NUMBER <= length <= LONGEST_CARD_NUMBER
        found[row] &= close == end or quotes[close] == SEPARATOR
        if found[row]:
            total = np.int64(0)
            for place in range(length):
                digit = np.int64(quotes[close - 1 - place]) - 0x30
                total += digit if place % 2 == 0 else 2 * digit - 9 * (digit > 4)
            found[row] = total % 10 == 0


def find_card_numbers(quotes: pa.BinaryArray) -> NDArray[np.bool_]:
    """Whether each text begins with a card number, shape (n,).

    Args:
        quotes: the field to look at first in each, SEPARATOR or nothing behind it; no nulls.
    """
    data, offsets = columns.buffers(quotes)
    found = np.empty(len(quotes), dtype=np.bool_)
    _find(data, offsets, found)
    return found
