"""The requests of each transaction: the bytes of kafka-python's encoder, and its answers read back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from streaming_job.transaction import requests
from streaming_job.transaction.requests import Identity

pytestmark = pytest.mark.unit

TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)
IDENTITIES = st.builds(Identity, TEXTS, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
PARTITIONS = st.tuples(TEXTS, st.integers(0, 2**31 - 1))
CODES = st.dictionaries(PARTITIONS, st.integers(-1, 2**15 - 1), max_size=8)


def received(answer: ApiMessage, version: int) -> bytes:
    """An answer as a connection gives it: from the request's number on, which tags follow."""
    return b"\0\0\0\7" + b"\1\5\2ab" + bytes(answer.encode(version=version))


def grouped(parts: dict[tuple[str, int], Any]) -> dict[str, list[tuple[int, Any]]]:
    """By topic, in the order in which topics come first: index and content of each partition."""
    topics: dict[str, list[tuple[int, Any]]] = {}
    for (topic, index), content in parts.items():
        topics.setdefault(topic, []).append((index, content))
    return topics


@given(
    who=IDENTITIES,
    implicit=st.booleans(),
    timeout_ms=st.integers(0, 2**31 - 1),
    batches=st.dictionaries(PARTITIONS, st.binary(max_size=300), max_size=8),
)
def test_a_request_to_produce_has_the_bytes_of_the_library(
    who: Identity, implicit: bool, timeout_ms: int, batches: dict[tuple[str, int], bytes]
) -> None:
    topic = ProduceRequest.TopicProduceData
    expected = ProduceRequest(
        transactional_id=who.transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            topic(
                name=name,
                partition_data=[topic.PartitionProduceData(index=i, records=batch) for i, batch in parts],
            )
            for name, parts in grouped(batches).items()
        ],
    )
    version = 12 if implicit else 9
    made = requests.produce(who, timeout_ms, batches, implicit=implicit)
    assert made[1:] == (ProduceRequest.API_KEY, version, bytes(expected.encode(version=version)))


@given(
    who=IDENTITIES,
    implicit=st.booleans(),
    group=TEXTS,
    offsets=st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 2**63 - 1), TEXTS), max_size=8),
)
def test_a_request_to_commit_offsets_has_the_bytes_of_the_library(
    who: Identity, implicit: bool, group: str, offsets: dict[tuple[str, int], tuple[int, str]]
) -> None:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    expected = TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id=group,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    )
                    for index, (offset, metadata) in parts
                ],
            )
            for name, parts in grouped(offsets).items()
        ],
    )
    version, parts = 5 if implicit else 3, [(tp, *value) for tp, value in offsets.items()]
    made = requests.commit_offsets(who, group, parts, implicit=implicit)
    assert made[1:] == (TxnOffsetCommitRequest.API_KEY, version, bytes(expected.encode(version=version)))


@given(who=IDENTITIES, implicit=st.booleans())
def test_a_request_to_end_a_transaction_has_the_bytes_of_the_library(who: Identity, implicit: bool) -> None:
    transactional_id, producer_id, epoch = who
    expected = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    version = 5 if implicit else 3
    made = requests.end(who, implicit=implicit)
    assert made[1:] == (EndTxnRequest.API_KEY, version, bytes(expected.encode(version=version)))


@given(who=IDENTITIES, group=TEXTS, partitions=st.lists(PARTITIONS, unique=True, max_size=8))
def test_requests_to_register_have_the_bytes_of_the_library(
    who: Identity, group: str, partitions: list[tuple[str, int]]
) -> None:
    transactional_id, producer_id, epoch = who
    topics = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[index for index, _ in parts])
        for name, parts in grouped(dict.fromkeys(partitions)).items()
    ]
    registered = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )
    made = requests.add_partitions(who, partitions)
    assert made[1:] == (AddPartitionsToTxnRequest.API_KEY, 3, bytes(registered.encode(version=3)))
    offsets = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
    )
    made = requests.add_offsets(who, group)
    assert made[1:] == (AddOffsetsToTxnRequest.API_KEY, 3, bytes(offsets.encode(version=3)))


@given(codes=CODES, version=st.sampled_from([9, 12]), message=st.none() | TEXTS, errors=st.integers(0, 2))
def test_an_answer_about_records_is_read_with_all_that_it_may_hold(
    codes: dict[tuple[str, int], int], version: int, message: str | None, errors: int
) -> None:
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    error = part.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message=message)
    leader = {"current_leader": part.LeaderIdAndEpoch(leader_id=2, leader_epoch=7)} if version >= 10 else {}
    answer = ProduceResponse(
        responses=[
            topic(
                name=name,
                partition_responses=[
                    part(
                        index=index,
                        error_code=code,
                        base_offset=4,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[error] * errors,
                        error_message=message,
                        **leader,
                    )
                    for index, code in parts
                ],
            )
            for name, parts in grouped(codes).items()
        ],
        throttle_time_ms=0,
    )
    assert requests.produced(received(answer, version)) == codes


@given(codes=CODES, version=st.sampled_from([3, 5]))
def test_an_answer_about_offsets_is_read(codes: dict[tuple[str, int], int], version: int) -> None:
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    answer = TxnOffsetCommitResponse(
        throttle_time_ms=5,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in parts
                ],
            )
            for name, parts in grouped(codes).items()
        ],
    )
    assert requests.by_partition(received(answer, version)) == codes


def test_an_answer_about_the_end_has_the_next_epoch_if_it_is_implicit() -> None:
    answer = EndTxnResponse(throttle_time_ms=0, error_code=51, producer_id=12, producer_epoch=3)
    assert [requests.of_all(received(answer, version)) for version in (3, 5)] == [51, 51]
    assert requests.next_owner(received(answer, 5)) == (12, 3)
