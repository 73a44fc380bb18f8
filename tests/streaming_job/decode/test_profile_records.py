"""Records of the profile topic: Debezium's envelope as a change, or a dead letter with its reason."""

import json
import re
from typing import Any

import numpy as np
import pytest

from feature_store.kernels.hashing import hash_string
from feature_store.layout import (
    DELETE,
    PROFILE,
    REREAD,
    SNAPSHOT,
    STATUSES,
    TOMBSTONE,
    UPSERT,
    country_code,
)
from loadtests.oracle import ProfileLog, Record
from streaming_job.contracts import Contract, Reason, validate
from streaming_job.decode.profiles import profile_change
from streaming_job.decode.snapshots import ends_snapshot, first_end, mark_later_rows
from streaming_job.decode.strict import Rejected

pytestmark = pytest.mark.unit

ROW: dict[str, Any] = {
    "card_id": "c-1",
    "status": "blocked",
    "home_country": "DE",
    "currency": "EUR",
    "credit_limit": 1234.5,
    "risk_tier": 2,
    "opened_on": 19_000,
}
KEY = b'{"card_id": "c-1"}'


def envelope(op: str = "u", before: Any = None, after: Any = ROW, **more: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, **more}).encode()


def changed(**fields: Any) -> bytes:
    return envelope(after={**ROW, **fields})


def without(name: str) -> bytes:
    return envelope(after={key: value for key, value in ROW.items() if key != name})


@pytest.mark.parametrize(("op", "change"), [("r", SNAPSHOT), ("c", UPSERT), ("u", UPSERT)])
def test_row_becomes_a_change(op, change):
    validate(Contract.PROFILE, ROW)
    (result,) = profile_change(KEY, envelope(op), 3, 14, 1500)
    assert (result["lo"], result["hi"]) == hash_string("c-1")
    assert (result["change"], result["partition"], result["offset"], result["arrival"]) == (
        change,
        3,
        14,
        1500,
    )
    assert STATUSES[result["status"]] == "blocked"
    assert result["country"] == country_code("DE")
    assert (result["credit_limit"], result["risk_tier"], result["opened_on"]) == (1234.5, 2, 19_000)


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        (KEY, None, TOMBSTONE),
        (KEY, envelope("d", before=ROW, after=None), DELETE),
        (
            KEY,
            envelope("d", before={"card_id": "c-1"}, after=None),
            DELETE,
        ),  # the key alone, by Postgres' default replica identity
        (None, envelope("d", before={"card_id": "c-1", "status": None}, after=None), DELETE),
    ],
)
def test_a_delete_needs_only_the_card(key, value, change):
    (result,) = profile_change(key, value, 0, 0, 0)
    assert result["change"] == change
    assert (result["lo"], result["hi"]) == hash_string("c-1")


@pytest.mark.parametrize(
    "value",
    [
        changed(branch="Köln", limits={"a": [1]}),  # a column was added
        envelope(source={"lsn": 1, "snapshot": "false"}, ts_ms=1, transaction=None),
        changed(credit_limit=0),
        changed(opened_on=-1),
        changed(risk_tier=0),
        changed(home_country="ZZ"),
    ],
)
def test_unknown_columns_and_fields_are_ignored(value):
    (result,) = profile_change(KEY, value, 0, 0, 0)
    row = json.loads(value)["after"]
    assert STATUSES[result["status"]] == row["status"]
    assert result["country"] == country_code(row["home_country"])
    assert all(result[name] == row[name] for name in ("credit_limit", "risk_tier", "opened_on"))


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        (envelope("r", source={"snapshot": "last"}), True),
        (envelope("r", source={"snapshot": "true"}), False),
        (envelope("r", source={"snapshot": "last_in_data_collection"}), True),  # other tables follow
        (envelope("r", source={"snapshot": "first_in_data_collection"}), False),
        (envelope("r", note="last", source={"snapshot": "first"}), False),
        (envelope("r", note="last", source="last"), False),
        (envelope("r", after=None, source={"snapshot": "last"}), True),  # even if invalid
        (envelope("r", source={"snapshot": "last"})[:-1], False),
        (envelope("u"), False),
        (None, False),
    ],
)
def test_the_last_row_of_a_snapshot_is_recognised(value, ends):
    assert ends_snapshot(value) == ends


def test_the_first_snapshots_end_is_the_earliest():
    assert first_end(None, None) is None
    assert first_end(None, 5) == first_end(5, None) == first_end(5, 9) == first_end(9, 5) == 5


@pytest.mark.parametrize(("end", "later"), [(None, []), (10, []), (9, [1]), (4, [0, 1])])
def test_rows_that_arrive_after_the_first_snapshots_end_are_reread(end, later):
    changes = np.zeros(3, dtype=PROFILE)
    changes["arrival"], changes["change"] = (5, 10, 11), (SNAPSHOT, SNAPSHOT, UPSERT)
    mark_later_rows(changes, end)
    assert np.flatnonzero(changes["change"] == REREAD).tolist() == later
    assert changes["change"][2] == UPSERT


BAD: list[tuple[bytes | None, bytes | None, Reason]] = [
    (None, None, Reason.EMPTY_VALUE),
    (b"", None, Reason.EMPTY_VALUE),
    (b"c-1", None, Reason.MALFORMED_JSON),
    (b"{}", None, Reason.MISSING_FIELD),
    (b'{"card_id": 1}', None, Reason.WRONG_TYPE),
    (KEY, b"", Reason.EMPTY_VALUE),
    (KEY, b"{", Reason.MALFORMED_JSON),
    (KEY, b"\xff", Reason.INVALID_UTF8),
    (KEY, b"[]", Reason.NOT_AN_OBJECT),
    (KEY, b" " * 70_000, Reason.RECORD_TOO_LARGE),
    (KEY, b"{}", Reason.INVALID_VALUE),
    (KEY, envelope("t"), Reason.INVALID_VALUE),
    (KEY, json.dumps({"op": ["u"], "after": ROW}).encode(), Reason.INVALID_VALUE),
    (KEY, envelope(after=None), Reason.WRONG_TYPE),
    (KEY, envelope(after="row"), Reason.WRONG_TYPE),
    (KEY, envelope("d", before=None), Reason.WRONG_TYPE),
    (KEY, json.dumps({"schema": {}, "payload": {"op": "u", "after": ROW}}).encode(), Reason.INVALID_VALUE),
    *((KEY, without(name), Reason.MISSING_FIELD) for name in ROW),
    *((KEY, changed(**{name: None}), Reason.WRONG_TYPE) for name in ROW),
    (KEY, changed(card_id=""), Reason.INVALID_VALUE),
    (KEY, changed(card_id="c-2"), Reason.INVALID_VALUE),
    (KEY, envelope("d", before={"card_id": "c-2"}, after=None), Reason.INVALID_VALUE),
    (b'{"card_id":""}', envelope(), Reason.INVALID_VALUE),
    (b'{"card_id":"\xff"}', envelope(), Reason.INVALID_VALUE),
    (KEY, changed(card_id="c-2", risk_tier=None), Reason.INVALID_VALUE),  # not applied, not even its status
    (KEY, changed(status="lost"), Reason.INVALID_VALUE),
    (KEY, changed(status=["active"]), Reason.WRONG_TYPE),
    (KEY, changed(home_country="de"), Reason.INVALID_VALUE),
    (KEY, changed(currency="€"), Reason.INVALID_VALUE),
    (KEY, changed(credit_limit="1234.50"), Reason.WRONG_TYPE),  # decimal.handling.mode=string
    (KEY, changed(credit_limit="AeJA"), Reason.WRONG_TYPE),  # decimal.handling.mode=precise
    (KEY, changed(credit_limit={"scale": 2, "value": "AeJA"}), Reason.WRONG_TYPE),  # numeric without a scale
    (KEY, changed(home_country="__debezium_unavailable_value"), Reason.INVALID_VALUE),
    (KEY, changed(status="__debezium_unavailable_value"), Reason.INVALID_VALUE),
    (KEY, changed(credit_limit=-1), Reason.NEGATIVE_AMOUNT),
    (KEY, changed(credit_limit=1e16), Reason.INVALID_VALUE),
    (KEY, changed(credit_limit=float("nan")), Reason.NON_FINITE_NUMBER),
    (KEY, changed(risk_tier=4), Reason.INVALID_VALUE),
    (KEY, changed(risk_tier=1.0), Reason.WRONG_TYPE),
    (KEY, changed(opened_on="2020-01-01"), Reason.WRONG_TYPE),
    (KEY, changed(opened_on=10**9), Reason.INVALID_VALUE),
]


@pytest.mark.parametrize(("key", "value", "reason"), BAD, ids=[f"{n}-{bad[2]}" for n, bad in enumerate(BAD)])
def test_an_invalid_record_is_refused_with_the_oracles_reason(key, value, reason):
    with pytest.raises(Rejected) as refused:
        profile_change(key, value, 0, 0, 0)
    assert refused.value.reason == reason
    assert refused.value.detail
    (outcome,) = ProfileLog().read([Record("profiles", 0, 0, 0, key, value)])
    assert outcome.reason == reason


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ({"schema": {}, "payload": {"op": "c", "after": ROW}}, "set value.converter.schemas.enable=false"),
        ({**ROW, "__deleted": "false"}, "remove the transform ExtractNewRecordState"),
        ({"op": "t", "source": {}}, "op must be one of r, c, u, d"),
    ],
)
def test_the_detail_names_the_connectors_wrong_setting(value, detail):
    with pytest.raises(Rejected, match=re.escape(detail)):
        profile_change(KEY, json.dumps(value).encode(), 0, 0, 0)


@pytest.mark.parametrize(
    ("key", "detail"), [(None, "the record has no key"), (b"[1]", "the key is a JSON list")]
)
def test_the_key_of_a_tombstone_is_named(key, detail):
    with pytest.raises(Rejected) as refused:
        profile_change(key, None, 0, 0, 0)
    assert refused.value.detail == detail
