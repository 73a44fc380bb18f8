"""P and Q: whether a group's state, its output and the log fit together. Pure.

P are the positions in the state, up to which the group has taken the log in; Q is how far its output has said
everything. P may lie behind Q by as much as the log is long: what lies between is decided again, in silence.
"""

from streaming_job.log.errors import LogError
from streaming_job.log.records import Offsets, Place
from streaming_job.runtime.checkpoint import CheckpointError


def require_fit(state: Offsets, said: Offsets, first: Offsets, end: Offsets) -> None:
    """See that a group can go on.

    Args:
        state: P by partition of all inputs, as the state has it.
        said: Q by partition of the group's transactions; empty if it has never said anything.
        first: the oldest offset that the log still holds, by partition of all inputs.
        end: the offset after its last record.

    Raises:
        CheckpointError: the state is ahead of the output.
        LogError: the log no longer holds what comes next, or ends before P or Q.
    """
    for place, offset in sorted(state.items()):
        if place in said and said[place] < offset:
            raise CheckpointError(
                f"the checkpoint is ahead of the topics: its state holds {_name(place)} up to {offset}, "
                f"output and progress reach {said[place]}; restore the topics and the consumer group that "
                "belong to it, or an older copy of the checkpoint, or use another job id"
            )
        if place not in end:
            raise LogError(f"{_name(place)} is gone: restore the topic, or use another job id")
        if first[place] > offset:
            raise LogError(
                f"{_name(place)} is to be read from offset {offset} on and begins at {first[place]}: "
                "retention has deleted the records, or the topic was recreated; restore a younger copy of "
                "the checkpoint, or use another job id"
            )
        # records that came below Q would be decided without a word
        read = max(offset, said.get(place, 0))
        if end[place] < read:
            raise LogError(
                f"{_name(place)} was read up to offset {read} and ends at {end[place]}: the topic was "
                "recreated, or has lost records; restore it, or use another job id"
            )


def require_said(state: int, topics: int) -> None:
    """See that the topics hold everything that the group has said before its state was saved.

    Args:
        state: number of the group's last Kafka transaction, as the state has it.
        topics: the same by its committed offsets and its progress records, whichever tells more.

    Raises:
        CheckpointError: they do not: it would not be known what has been said since.
    """
    if topics < state:
        raise CheckpointError(
            f"the checkpoint is ahead of the topics: the group has written {state} Kafka transactions, its "
            f"committed offsets and progress records tell of {topics}; restore the consumer group's offsets "
            "or the progress topic, or use another job id"
        )


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
