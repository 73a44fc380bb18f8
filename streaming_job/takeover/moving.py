"""The steps by which the cards of a job move to other partitions: another topic, number or partitioner.

Nothing is kept between the steps: what is done is read from the job's progress and from the topics. So the
plan can be asked for at any time, and the steps can be stopped and resumed anywhere.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException

from streaming_job.contracts import Reason
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import describe
from streaming_job.log.partitioner import Layout, Partitioner
from streaming_job.progress import last_record
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings

RUN = "fraud job run"
Records = Mapping[int, Mapping[str, Any]]
"""The newest progress record of each key group, by group."""


@dataclass(frozen=True)
class Stage:
    """One step."""

    text: str
    is_done: bool


def topic_ends(settings: JobSettings, topic: str) -> list[int] | None:
    """Return the end of each partition of a topic; None if it does not exist.

    Raises:
        StartUpError: the brokers do not answer.
    """
    try:
        with closing(clients.reader(settings, f"{settings.job_id}-start")) as reader:
            return [end for _, end in topic_reader.bounds(reader, topic).values()]
    except KafkaException as fault:
        if topic_reader.is_missing(fault):
            return None
        raise StartUpError(
            f"the ends of {topic} cannot be read: {describe(fault)}; check the brokers"
        ) from fault


def layout_of(records: Records) -> Layout:
    """Return where a job's transactions are; its key group 0 says it.

    Raises:
        StartUpError: group 0 has no progress record.
    """
    if 0 not in records:
        raise StartUpError(
            "key group 0 has no progress record, which says where the transactions are; restore the progress "
            "topic"
        )
    return Layout.from_json(records[0]["layout"])


def drained_up_to(records: Records, ends: list[int]) -> str:
    """Return what the job still has to decide before the cards can move; empty: nothing.

    Args:
        ends: of the partitions of its transactions.
    """
    layout = layout_of(records)
    positions = [last_record.positions(record) for record in records.values()]
    # a group may not know yet a partition that a table has got lately
    known = {tp for each in positions for tp in each}
    reached = {tp: {each.get(tp, 0) for each in positions} for tp in known}
    behind = sum(
        max(0, end - max(reached.get((layout.topic, partition), {0})))
        for partition, end in enumerate(ends[: layout.partitions])
    )
    if behind:
        return f"{behind} records of {layout.topic} are not decided"
    of_one_group = (layout.topic, *followed(records))
    apart = sorted(
        {topic for (topic, _), read in reached.items() if len(read) > 1 and topic not in of_one_group}
    )
    return f"its key groups have read {', '.join(apart)} up to different positions" if apart else ""


def followed(records: Records) -> list[str]:
    """Return the topics that the transactions have left, and whose later records the job still refuses."""
    read = {topic for topic, _ in last_record.positions(records[0])}
    return [topic for topic in last_record.left(records[0]) if topic in read]


def retired_after(records: Records, target: str) -> list[str]:
    """Return the retired topics of a successor whose transactions are in the topic `target`."""
    now = layout_of(records).topic
    return [*followed(records), *([now] if now != target else [])]


def stages(
    records: Records, target: str, partitioner: Partitioner, ends: Mapping[str, list[int] | None]
) -> list[Stage]:
    """Return the steps of a move, in their order.

    Args:
        records: of the job that has written last.
        target: topic to which the cards are to move; it may be their own, which has got more partitions.
        partitioner: of the producers of `target`.
        ends: ends of the partitions of `target` and of the job's topic, by topic; None: no such topic.

    Raises:
        StartUpError: the job keeps merchant facts.
    """
    now = layout_of(records)
    if records[0].get("label_delay_ms") is not None:
        raise StartUpError(
            "the cards of a job that keeps merchant facts do not move, because facts follow decisions: "
            'first turn these off (docs/operations.md, "Merchant facts, and the label delay")'
        )
    query_id, groups = records[min(records)]["query_id"], len(records)
    partitions = len(ends[target] or ())
    to = Layout(target, partitioner, partitions)
    if to == now:
        return _after(records, now)
    is_same, left = target == now.topic, now.topic
    missing = drained_up_to(records, ends[left] or [])
    has_left = target in last_record.left(records[0])
    retired = ",".join(retired_after(records, target))
    variables = [
        f"FRAUD_PREDECESSOR={query_id} FRAUD_PREDECESSOR_CHECKPOINT=<the job's checkpoint>",
        "FRAUD_CHECKPOINT=<an empty directory>",
        f"FRAUD_PARTITIONER={partitioner}",
        *([] if is_same else [f"FRAUD_TOPICS__TRANSACTIONS={target}"]),
        *([f"FRAUD_RETIRED_TRANSACTIONS={retired}"] if retired else []),
        f"FRAUD_KEY_GROUPS=<n, {groups} now>",
    ]
    create = (
        f"give {target} more partitions, if it is to have some: it has {partitions}, the job decides "
        f"{now.partitions}"
        if is_same
        else f"create {target}: FRAUD_TOPICS__TRANSACTIONS={target} fraud job topics --partitions <n>"
    )
    wait = (
        "keep them stopped until the job has taken over"
        if is_same
        else f"they may write to {target} from then on: its records wait for the successor"
    )
    drain = f"stop the job with SIGTERM, then run it to the end of its inputs: FRAUD_DRAIN=true {RUN}"
    resume = f"let the producers write to {to}, once this command says that the job decides it"
    if has_left:
        create = f"choose another name: the transactions have left {target}, so its offsets are decided"
    return [
        Stage(create, partitions > 0 and not has_left),
        Stage(f"stop all producers of {left}, and let them send what they have; {wait}", not missing),
        Stage(f"{drain}; it ends by itself" + (f" (now {missing})" if missing else ""), not missing),
        Stage(f"start the successor: {' '.join(variables)} {RUN}", False),
        *([Stage(resume, False)] if is_same else []),
    ]


def _after(records: Records, now: Layout) -> list[Stage]:
    """Return the steps after a move."""
    done = [Stage(f"the job decides {now}", True)]
    if not (left := last_record.left(records[0])):
        return done
    late = sum(
        record["totals"]["dead_letters_by_reason"].get(Reason.RETIRED_TOPIC.value, 0)
        for record in records.values()
    )
    names = ", ".join(watched := followed(records)) or ", ".join(left)
    forbid = f"take away the permission to write to {names}; records that came too late so far: {late}"
    forget = (
        f"once none come any more, restart the job without {names} in FRAUD_RETIRED_TRANSACTIONS; keep each "
        "topic as long as `fraud verify` is to audit across the move"
    )
    return [*done, Stage(forbid, not watched), Stage(forget, not watched)]
