"""The requests of each transaction: the bytes of kafka-python's encoder, and its answers read back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.producer import (
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
    version=st.sampled_from([9, 11, 12]),
    timeout_ms=st.integers(0, 2**31 - 1),
    batches=st.dictionaries(PARTITIONS, st.binary(max_size=300), max_size=8),
)
def test_a_request_to_produce_has_the_bytes_of_the_library(
    who: Identity, version: int, timeout_ms: int, batches: dict[tuple[str, int], bytes]
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
    made = requests.produce(version, who, timeout_ms, batches)
    assert made[1:] == (ProduceRequest.API_KEY, version, bytes(expected.encode(version=version)))


@given(
    who=IDENTITIES,
    version=st.sampled_from([3, 5]),
    group=TEXTS,
    offsets=st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 2**63 - 1), TEXTS), max_size=8),
)
def test_a_request_to_commit_offsets_has_the_bytes_of_the_library(
    who: Identity, version: int, group: str, offsets: dict[tuple[str, int], tuple[int, str]]
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
    made = requests.commit_offsets(version, who, group, [(tp, *value) for tp, value in offsets.items()])
    assert made[1:] == (TxnOffsetCommitRequest.API_KEY, version, bytes(expected.encode(version=version)))


@given(who=IDENTITIES, version=st.sampled_from([3, 5]))
def test_a_request_to_end_a_transaction_has_the_bytes_of_the_library(who: Identity, version: int) -> None:
    transactional_id, producer_id, epoch = who
    expected = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    made = requests.end(version, who)
    assert made[1:] == (EndTxnRequest.API_KEY, version, bytes(expected.encode(version=version)))


@given(codes=CODES, version=st.sampled_from([9, 11, 12]), message=st.none() | TEXTS, errors=st.integers(0, 2))
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
    assert requests.committed(received(answer, version)) == codes


@pytest.mark.parametrize(("version", "following"), [(3, ()), (5, (12, 3))])
def test_an_answer_about_the_end_has_the_next_epoch_from_version_5_on(
    version: int, following: tuple[int, ...]
) -> None:
    answer = EndTxnResponse(throttle_time_ms=0, error_code=51, producer_id=12, producer_epoch=3)
    assert requests.ended(version, received(answer, version)) == (51, following)
