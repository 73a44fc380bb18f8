"""What is read of an input topic."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Records:
    """Consecutive records of one partition, n of them."""

    topic: str
    partition: int
    offsets: NDArray[np.int64]
    """Shape (n,)."""
    arrivals: NDArray[np.int64]
    """Kafka timestamps, ms, shape (n,)."""
    keys: pa.BinaryArray
    """Null where a record has none."""
    values: pa.BinaryArray
    """Null where a record has none."""
