"""The first cause of each difference, in the order in which a decision comes about. Pure.

    profile -> features -> model -> policy -> earlier alerts of the card -> code

A pair of alerts carries all of these. Of an alert that the other side has not raised, only the other side's
champion is known: model and policy that were in force at its arrival, and the release. If these are the same,
the state of the card is the cause: its profile, its features or its earlier alerts.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from deploy.replay.comparison.columns import features
from deploy.replay.comparison.differences import Joined, Side, differ
from feature_store.merchants.catalogue import ALL_NAMES, MERCHANT_FEATURES

PROFILE, MODEL, POLICY, CODE = "profile version", "model", "policy", "code"
EARLIER, STATE, OTHER = "earlier alerts of the card", "state of the card", "other"
LABELLED, FEATURE = "label known later", "feature"
NAMES = {PROFILE, MODEL, POLICY, CODE, EARLIER, STATE, OTHER} | {
    f"{kind}: {name}" for kind in (CODE, LABELLED, FEATURE) for name in ALL_NAMES
}
"""All causes."""
LABELS = tuple(ALL_NAMES.index(feature.name) for feature in MERCHANT_FEATURES)
Deciding = Callable[[NDArray[np.int64]], tuple[NDArray[np.object_], NDArray[np.object_]]]
"""Function (arrivals, shape (n,)) -> digests of model and policy of the champion then, shape (n,) each."""


def of_pairs(joined: Joined) -> NDArray[np.object_]:
    """Return the first cause of each pair of `Joined.in_both`, None for equal ones, shape (m,)."""
    causes: NDArray[np.object_] = np.full(joined.kinds.size, None, dtype=object)
    rows = np.flatnonzero(joined.kinds != None)  # noqa: E711  each element is compared
    one = joined.live.table.take(pa.array(joined.in_both[0][rows]))
    other = joined.replay.table.take(pa.array(joined.in_both[1][rows]))
    found: NDArray[np.object_] = np.full(rows.size, OTHER, dtype=object)
    is_code = _differs(one, other, "release")
    # the earliest cause is assigned last
    found[is_code] = CODE
    found[_differs(one, other, "suspicious_count", ("day", "total"))] = EARLIER
    found[_differs(one, other, "policy")] = POLICY
    found[_differs(one, other, "model", ("digest",))] = MODEL
    _name_features(found, one, other, is_code)
    found[_differs(one, other, "profile", ("partition", "offset"))] = PROFILE
    causes[rows] = found
    return causes


def of_single(side: Side, rows: NDArray[np.int64], deciding: Deciding, release: str) -> NDArray[np.object_]:
    """Return the cause of each alert that the other side has not raised, shape (n,).

    Args:
        side: the side that raised it.
        rows: its rows, shape (n,).
        deciding: the other side's champions.
        release: the other side's release.
    """
    table = side.table.take(pa.array(rows))
    models, policies = deciding(table["arrival_time"].to_numpy())
    found: NDArray[np.object_] = np.full(rows.size, STATE, dtype=object)
    found[differ(table["release"], release)] = CODE
    found[differ(table["policy"], _column(policies))] = POLICY
    found[differ(compute.struct_field(table["model"], "digest"), _column(models))] = MODEL
    return found


def _column(texts: NDArray[np.object_]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.string())])


def _name_features(
    found: NDArray[np.object_], one: pa.Table, other: pa.Table, is_code: NDArray[np.bool_]
) -> None:
    """Set the causes of the rows whose features differ, by the first that does."""
    a, b = features(one["value"]), features(other["value"])
    differs = (a != b) & ~(np.isnan(a) & np.isnan(b))
    first = differs.argmax(axis=1) if differs.size else np.empty(0, np.int64)
    for row in np.flatnonzero(differs.any(axis=1)).tolist():
        column = int(first[row])
        kind = CODE if is_code[row] else LABELLED if column in LABELS else FEATURE
        found[row] = f"{kind}: {ALL_NAMES[column]}"


def _differs(one: pa.Table, other: pa.Table, name: str, fields: tuple[str, ...] = ()) -> NDArray[np.bool_]:
    """Return where a column, or any of some fields of it, has other values, shape (m,)."""
    result = np.zeros(len(one), np.bool_)
    for field in fields or ("",):
        a, b = (compute.struct_field(table[name], field) if field else table[name] for table in (one, other))
        result |= differ(a, b)
    return result
