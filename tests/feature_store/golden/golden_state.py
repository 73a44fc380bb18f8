"""Makes the golden files of the current state format: `PYTHONPATH=.:tests/feature_store python <this file>`.

Run it once for each format; never again once the format is released. A directory `format-N` holds the pieces
of a small state, and `expected.json` the outcome of the batch that followed.
"""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
from harness.log_world import DAY, HOUR, MINUTE, SECOND
from histories import History, Pieces, one_batch, persist

from feature_store.catalogue import NAMES
from feature_store.layout import FORMAT_VERSION
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta
from feature_store.state.pieces import write_piece

HERE = Path(__file__).parent
LAST = 4
"""Number of transactions in the batch that follows; the files do not hold them."""


def history() -> History:
    """A log of an ordinary card (profile versions, late events, alerts) and of idle, hot and evicted ones."""
    result = History()
    result.tx(-100 * DAY, 2_000_000, card="gone", transaction_id="gone")
    result.tx(-100 * DAY, card="without transactions", transaction_id="gone too")
    result.profile("r", 0, "plain", credit_limit=500.0, risk_tier=2)
    result.profile("u", 3 * DAY, "plain", status="blocked", credit_limit=750.0)
    result.profile("c", 0, "without transactions")
    for day in range(10):
        late = HOUR if day % 3 == 0 else 0
        result.tx(
            day * DAY - late, 10_000 * (day * 37 % 250), arrival=day * DAY, card="plain",
            merchant=f"m{day % 4}", country=("FR", "DE", "ZZ")[day % 3],
        )  # fmt: skip
    result.tx(10 * DAY, 55_500, card="idle")
    for number in range(600):
        result.tx(10 * DAY + number * SECOND, 1_000 * (number % 97), card="hot", merchant=f"m{number % 7}")
    later = 11 * DAY
    result.tx(later, 2_000_000, card="plain", merchant="m1")
    result.again(result.transactions[-1], later)
    result.tx(later + MINUTE, 20_000, card="idle")
    result.tx(later + MINUTE, 30_000, card="hot")
    return result


def main() -> None:
    """Write the files."""
    result = history()
    records, changes = result.records(), result.change_records()
    store, state, meta = Pieces(), GroupState(MemoryArena()), Meta()
    borders = [0, 7, 302, 562, 592, len(records) - LAST]
    read = 0
    for start, end in pairwise(borders):
        batch = records[start:end]
        known = int(np.searchsorted(changes["arrival"], batch["arrival"].max(), side="right"))
        _, delta = one_batch(state, changes[read:known], batch)
        read = known
        persist(store, meta, state, delta)
        if end == 562:  # a snapshot here, and none later: the later deltas do not earn 10**9 bytes of credit
            store.put("s0", write_piece(state, 0, bytes.fromhex(meta.head)))
            meta.pieces, meta.oldest, meta.credit = [meta.sequence], meta.sequence + 1, -(10**9)
            store.put("meta", meta.encode())
    judged, _ = one_batch(state, changes[:0], records[-LAST:])
    expected = {
        "cards": state.card_count,
        "events": state.event_count,
        "duplicate": judged.duplicate.tolist(),
        "late": judged.late.tolist(),
        "suspicious": judged.suspicious,
        "features": [
            {name: None if math.isnan(x) else x for name, x in zip(NAMES, row, strict=True)}
            for row in judged.features.tolist()
        ],
    }
    out = HERE / f"format-{FORMAT_VERSION}"
    out.mkdir(exist_ok=True)
    kept = {"meta", "s0", *(f"d{n}" for n in range(meta.oldest, meta.sequence + 1))}
    for name in sorted(kept):
        (out / name).write_bytes(store[name])
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
