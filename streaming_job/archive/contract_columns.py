"""The further columns of an archived topic: fields of its contract, as the job decodes them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from string import ascii_uppercase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feature_store.archive.file_writer import Decode
from feature_store.archive.layout import LABEL, PROFILE, TRANSACTION
from feature_store.layout import (
    CHANGES,
    NO_COUNTRY,
    NO_DAY,
    NO_TIER,
    STATUS_ONLY,
    STATUSES,
    UNITS_PER_CURRENCY,
    country_name,
)
from streaming_job.contracts import Contract
from streaming_job.decode import framed, labels, plain, profiles, snapshots
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.strict import FIELDS, Rejected
from streaming_job.decode.transactions import decode_fields

_COUNTRIES = pa.array([first + second for first in ascii_uppercase for second in ascii_uppercase])
"""Countries by their code (`layout.country_code`)."""


def transaction_columns(schemas: Callable[[], RecordSchemas | None], records: pa.Table) -> list[pa.Array]:
    """Return the columns TRANSACTION of n records; all are null in a record that does not decode.

    Args:
        schemas: returns all schemas of framed transactions that have arrived before now; called only if one
            of the records is framed.
    """
    values, arrivals = records["value"].combine_chunks(), np.asarray(records["timestamp"].cast(pa.int64()))
    decoded = decode_fields(values, arrivals, schemas() if framed.rows_of(values).size else None)
    parts = pc.split_pattern(decoded.quotes.cast(pa.string()), chr(plain.SEPARATOR)).flatten()
    width = len(plain.QUOTED)
    columns = {
        FIELDS[field]: parts.take(pa.array(np.arange(at, len(parts), width)))
        for at, field in enumerate(plain.QUOTED)
    }
    columns["amount"] = pa.array(decoded.records["amount"] / UNITS_PER_CURRENCY)
    columns["country"] = _COUNTRIES.take(pa.array(decoded.records["country"]))
    columns["event_time"] = pa.array(np.ascontiguousarray(decoded.records["time"]))
    ordered = [columns[name] for name in TRANSACTION.names]
    if not decoded.rejections:
        return ordered
    index = np.full(len(records), -1)
    index[decoded.rows] = np.arange(decoded.rows.size)
    rows = pa.array(index, mask=index < 0)
    return [column.take(rows) for column in ordered]


def label_columns(contract: Contract, records: pa.Table) -> list[pa.Array]:
    """Return the columns LABEL of n records of a contract, LABEL or CHARGEBACK."""
    rows: list[dict[str, object]] = []
    for key, value in zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True):
        try:
            fields = labels.read(key, value, contract)
        except Rejected:
            rows.append({})
        else:
            label = None if fields.fraud is None else "fraud" if fields.fraud else "genuine"
            identity = {"transaction_id": fields.transaction_id, "card_id": fields.card_id}
            rows.append({**identity, "label": label})
    return _columns(rows, LABEL)


def profile_columns(records: pa.Table) -> list[pa.Array]:
    """Return the columns PROFILE of n records."""
    rows: list[dict[str, object]] = []
    keys, values = records["key"].to_pylist(), records["value"].to_pylist()
    for key, value, time in zip(keys, values, records["timestamp"].cast(pa.int64()).to_pylist(), strict=True):
        row: dict[str, object] = {"ends_snapshot": snapshots.ends_snapshot(value)}
        rows.append(row)
        try:
            (change,), card_id, _ = profiles.read(key, value, 0, 0, time)
        except Rejected:
            continue
        row |= {"card_id": card_id, "change": CHANGES[int(change["change"])]}
        row |= {name: change[name].item() for name in ("lsn", "committed")}
        if change["change"] < STATUS_ONLY:
            known = {
                "status": STATUSES[change["status"]],
                "home_country": None if change["country"] == NO_COUNTRY else country_name(change["country"]),
                "credit_limit": None if np.isnan(change["credit_limit"]) else change["credit_limit"].item(),
                "risk_tier": None if change["risk_tier"] == NO_TIER else change["risk_tier"].item(),
                "opened_on": None if change["opened_on"] == NO_DAY else change["opened_on"].item(),
            }
            row |= known
    return _columns(rows, PROFILE)


def _columns(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> list[pa.Array]:
    return [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]


def _none(_records: pa.Table) -> Sequence[pa.Array]:
    return []


_DECODERS: Mapping[str, Decode] = {
    "profiles": profile_columns,
    "labels": partial(label_columns, Contract.LABEL),
    "chargebacks": partial(label_columns, Contract.CHARGEBACK),
}


def decoder(field: str, schemas: Callable[[], RecordSchemas | None] = lambda: None) -> Decode:
    """Return the function that computes the further columns of a topic, by its field.

    Args:
        schemas: see `transaction_columns`.
    """
    return partial(transaction_columns, schemas) if field == "transactions" else _DECODERS.get(field, _none)
