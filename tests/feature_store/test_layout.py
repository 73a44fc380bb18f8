"""Copies of structured records: those of numpy, only faster."""

import numpy as np
import pytest

from feature_store.layout import PROFILE, TRANSACTION, joined, rows_of


@pytest.mark.parametrize("dtype", [TRANSACTION, PROFILE])
def test_rows_and_joined_arrays_are_those_of_numpy(dtype: np.dtype) -> None:
    records = np.frombuffer(np.random.default_rng(1).bytes(9 * dtype.itemsize), dtype)
    mask, rows = np.arange(9) % 3 == 0, np.array([8, 2, 2])
    for part in (records, records[2:7], records[:0]):
        chosen, some = mask[: part.size], rows[rows < part.size]
        assert rows_of(part, chosen).tobytes() == part[chosen].tobytes()
        assert rows_of(part, some).tobytes() == part[some].tobytes()
    whole = joined([records[2:7], records[:0], records])
    assert whole.dtype == dtype
    assert whole.tobytes() == np.concatenate([records[2:7], records]).tobytes()


def test_rows_are_a_copy() -> None:
    records = np.zeros(3, TRANSACTION)
    rows_of(records, np.ones(3, np.bool_))["amount"] = 1
    assert not records["amount"].any()
