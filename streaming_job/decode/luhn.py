"""Kernel that finds card numbers among card ids: `strict.check_card_number`, vectorised."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.jit import njit
from streaming_job.decode import columns
from streaming_job.decode.grammar import Bytes
from streaming_job.decode.plain import SEPARATOR
from streaming_job.decode.strict import LONGEST_CARD_NUMBER, SHORTEST_CARD_NUMBER


@njit(cache=True, nogil=True)
def _find(quotes: Bytes, offsets: NDArray[np.int32], matches: NDArray[np.bool_]) -> None:
    for row in range(matches.size):
        start, end = offsets[row], offsets[row + 1]
        close = start
        while close < end and close - start <= LONGEST_CARD_NUMBER and 0x30 <= quotes[close] <= 0x39:
            close += 1
        length = close - start
        matches[row] = SHORTEST_CARD_NUMBER <= length <= LONGEST_CARD_NUMBER
        matches[row] &= close == end or quotes[close] == SEPARATOR
        if matches[row]:
            total = np.int64(0)
            for position in range(length):
                digit = np.int64(quotes[close - 1 - position]) - 0x30
                total += digit if position % 2 == 0 else 2 * digit - 9 * (digit > 4)
            matches[row] = total % 10 == 0


def find_card_numbers(quotes: pa.BinaryArray) -> NDArray[np.bool_]:
    """Return whether the first field of each text is a card number, shape (n,).

    Args:
        quotes: texts whose first field ends at SEPARATOR or at the end; no nulls.
    """
    data, offsets = columns.buffers(quotes)
    matches = np.empty(len(quotes), dtype=np.bool_)
    _find(data, offsets, matches)
    return matches
