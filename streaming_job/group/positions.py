"""The checks that a group's state (P), its output (Q) and the log belong together. Pure.

P are the offsets in the state, up to which the group has read the log. Q are the offsets committed with its
output. P may be any distance behind Q: the records between are decided again, in silence.
"""

from collections.abc import Collection, Mapping

from streaming_job.log.errors import LogError
from streaming_job.log.records import Offsets, PartitionId, name_of
from streaming_job.runtime.checkpoint_errors import CheckpointError


def require_fit(state: Offsets, output: Offsets, first: Offsets, end: Offsets) -> None:
    """Check that a group can continue.

    Args:
        state: P by partition of all inputs.
        output: Q by partition, as far as it is known; empty if the group has never written output.
        first: the first offset in the log, by partition of all inputs.
        end: the offset after the last record, by partition of all inputs.

    Raises:
        CheckpointError: the state is ahead of the output.
        LogError: a partition is gone, no longer holds the next records, or ends before P or Q.
    """
    for tp, offset in sorted(state.items()):
        if tp in output and output[tp] < offset:
            raise CheckpointError(
                f"the checkpoint is ahead of the topics: its state holds {name_of(tp)} up to {offset}, "
                f"output and progress reach {output[tp]}; restore the topics and the consumer group that "
                "belong to it, or an older copy of the checkpoint, or have an empty one take over "
                "(docs/operations.md)"
            )
        if tp not in end:
            raise _gone(tp)
        if first[tp] > offset:
            raise LogError(
                f"{name_of(tp)} has to be read from offset {offset}, but begins at {first[tp]}: "
                "retention has deleted the records, or the topic was recreated; restore a younger copy of "
                "the checkpoint, or have an empty one take over, if the records are decided "
                "(docs/operations.md), or use another job id"
            )
    require_reach({tp: max(offset, output.get(tp, 0)) for tp, offset in state.items()}, end)


def require_reach(read: Offsets, end: Offsets) -> None:
    """Check that the log reaches the offsets up to which the group has read it.

    If the log ends before Q, new records get offsets below Q, and would be decided in silence.

    Args:
        read: offset after the last record read in this or an earlier run, by partition.
        end: the offset after the last record, by partition.

    Raises:
        LogError: a partition is gone or ends earlier.
    """
    for tp, offset in sorted(read.items()):
        if tp not in end:
            raise _gone(tp)
        if end[tp] < offset:
            raise LogError(
                f"{name_of(tp)} was read up to offset {offset}, but ends at {end[tp]}: the topic was "
                "recreated, or has lost records; restore it, or use another job id"
            )


def require_same_topics(stored: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that P counts in these topics: in one that was recreated, it would skip the first records.

    Args:
        stored: Kafka's ids of the topics that the state has read, by topic.
        now: those of the topics to read.

    Raises:
        LogError: a topic was deleted and created again.
    """
    for topic, topic_id in sorted(now.items()):
        if stored.get(topic, topic_id) != topic_id:
            raise LogError(
                f"{topic} was deleted and created again (its id was {stored[topic]}, and is {topic_id}), so "
                "the state's offsets are not those of its records; restore the topic, or have an empty "
                "checkpoint take over if it holds the same records at the same offsets, or use another job id"
            )


def require_output(state: int, topics: int, unknown: Collection[PartitionId] = ()) -> None:
    """Check that the topics show all output that the group has written.

    Args:
        state: number of the group's last Kafka transaction when its state was saved.
        topics: the greater of the numbers in its committed offsets and in its progress records.
        unknown: partitions whose position after transaction number `topics` neither of the two shows.

    Raises:
        CheckpointError: the topics are behind the state, or ahead of it without showing every position.
    """
    if topics < state:
        raise CheckpointError(
            f"the checkpoint is ahead of the topics: the group has written {state} Kafka transactions, but "
            f"its committed offsets and progress records show {topics}; restore the consumer group's offsets "
            "or the progress topic, or use another job id"
        )
    # if no transaction is newer than the state, the output's positions are those of the state
    if topics > state and unknown:
        raise CheckpointError(
            f"the group has written {topics} Kafka transactions, but neither its committed offsets nor its "
            f"progress records show its position in {', '.join(map(name_of, sorted(unknown)))} after the "
            "last one; restore the consumer group's offsets or the progress topic, or use another job id"
        )


def _gone(tp: PartitionId) -> LogError:
    return LogError(f"{name_of(tp)} is gone: restore the topic, or use another job id")
