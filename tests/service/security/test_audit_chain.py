"""The audit log's chain: all tampering is found.

A head is the digest of the last record. That the end was cut off or forged is found only with a head that was
kept elsewhere before, and that is the digest of a record that is now missing.
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from security_world import chain, entry

from service.security import audit
from service.security.audit import Fault
from streaming_job.contracts import Contract, validate

pytestmark = pytest.mark.unit
UNTIMED = settings(deadline=None)  # the machine may be busy

CHAIN = chain(8)
PLACES = st.integers(0, len(CHAIN) - 1)


def faults(values: list[bytes], head: str | None = None) -> set[tuple[int, Fault]]:
    return {(finding.number, finding.fault) for finding in audit.verify(values, head).findings}


def heads() -> list[str]:
    return [str(audit.verify(CHAIN[:count]).head) for count in range(1, len(CHAIN) + 1)]


def forged(value: bytes, **changes: Any) -> bytes:
    """A record with other content and the matching digest."""
    record = {**json.loads(value), **changes}
    for name in ("schema_version", "digest"):
        record.pop(name)
    previous = record.pop("previous")
    content = json.loads(audit.next_record(None, audit.Entry(origin=record.pop("from"), **record)))
    content["previous"] = previous
    content.pop("digest")
    return audit.canonical({**content, "digest": audit.digest(content)})


def test_a_written_log_is_intact_and_keeps_its_contract() -> None:
    for value in CHAIN:
        validate(Contract.AUDIT_RECORD, json.loads(value))
    seen = audit.verify(CHAIN)
    assert (seen.records, seen.head, seen.is_intact) == (8, audit.link(CHAIN[-1]), True)
    assert audit.verify([]) == audit.Verification(0, None, ())
    for known in heads():  # every earlier head is in the chain
        assert audit.verify(CHAIN, known).is_intact


@UNTIMED
@given(
    place=PLACES,
    field=st.sampled_from(["actor", "role", "action", "target", "from", "outcome"]),
    text=st.text(min_size=1),
)
def test_a_changed_record_is_found(place: int, field: str, text: str) -> None:
    record = json.loads(CHAIN[place])
    if record[field] == text:
        return
    changed = audit.canonical({**record, field: text})
    assert faults([*CHAIN[:place], changed, *CHAIN[place + 1 :]]) == {(place, Fault.CHANGED)}


@UNTIMED
@given(place=PLACES, at=st.integers(0, 10))
def test_a_changed_record_with_a_matching_digest_is_found(place: int, at: int) -> None:
    values = [*CHAIN[:place], forged(CHAIN[place], at=at), *CHAIN[place + 1 :]]
    # no record follows the last one: a digest stored elsewhere is needed
    found = {(place + 1, Fault.MISSING)} if place < len(CHAIN) - 1 else set()
    cut = {(len(CHAIN), Fault.CUT)}
    assert faults(values) == found
    assert faults(values, heads()[-1]) == (found or cut)
    assert faults(values, heads()[place]) == found | cut


@UNTIMED
@given(place=st.integers(0, len(CHAIN) - 2))
def test_a_removed_record_is_found(place: int) -> None:
    assert faults([*CHAIN[:place], *CHAIN[place + 1 :]]) == {(place, Fault.MISSING)}


@UNTIMED
@given(kept=st.integers(0, len(CHAIN) - 1))
def test_a_log_cut_at_its_end_is_found_by_a_later_head(kept: int) -> None:
    assert faults(CHAIN[:kept]) == set()
    assert faults(CHAIN[:kept], heads()[-1]) == {(kept, Fault.CUT)}
    if kept:
        assert faults(CHAIN[:kept], heads()[kept - 1]) == set()


@UNTIMED
@given(place=st.integers(1, len(CHAIN) - 1))
def test_an_inserted_record_is_found(place: int) -> None:
    well_made = audit.next_record(CHAIN[place - 1], entry(99, actor="mallory"))
    assert faults([*CHAIN[:place], well_made, *CHAIN[place:]]) == {(place, Fault.INSERTED)}
    assert (place, Fault.FOREIGN) in faults([*CHAIN[:place], b"no record", *CHAIN[place:]])
    # of two equal records either may be the copy
    assert {fault for _, fault in faults([*CHAIN[:place], CHAIN[place - 1], *CHAIN[place:]])} == {
        Fault.INSERTED
    }


@UNTIMED
@given(order=st.permutations(range(len(CHAIN))))
def test_a_changed_order_is_found(order: list[int]) -> None:
    assert bool(faults([CHAIN[index] for index in order])) == (order != sorted(order))


@UNTIMED
@given(
    chosen=st.lists(PLACES, max_size=12),
    head=st.sampled_from(["", *heads()]),
)
def test_only_a_beginning_of_the_log_passes(chosen: list[int], head: str) -> None:
    """A log passes exactly if it is a beginning of the written log and contains the known head, if any."""
    values = [CHAIN[index] for index in chosen]
    is_beginning = values == CHAIN[: len(values)]
    holds_head = not head or head in heads()[: len(values)]
    assert audit.verify(values, head or None).is_intact == (is_beginning and holds_head)


@UNTIMED
@given(place=PLACES, position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_changed_byte_is_found(place: int, position: int, byte: int) -> None:
    value = bytearray(CHAIN[place])
    value[position % len(value)] = byte
    if bytes(value) != CHAIN[place]:
        assert not audit.verify([*CHAIN[:place], bytes(value), *CHAIN[place + 1 :]]).is_intact


@UNTIMED
@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from([b"[" * 5000, b"1" * 6000, b'{"a":NaN}', b"null"]),
        max_size=4,
    )
)
def test_foreign_records_on_the_topic_do_not_stop_the_chain(values: list[bytes]) -> None:
    """The chain continues after any record on the topic, and foreign records are reported."""
    following = audit.next_record(values[-1] if values else None, entry(1))
    seen = audit.verify([*values, following])
    assert {finding.number for finding in seen.findings} == set(range(len(values)))
    assert {finding.fault for finding in seen.findings} <= {Fault.FOREIGN}


def test_details_beyond_ascii_keep_their_digest() -> None:
    value = audit.next_record(
        None, entry(1, detail={"reason": "zur\u00fcck \ud83d\ude00 \udcff", "x": 0.1, "n": 2**70})
    )
    assert audit.verify([value]).is_intact
