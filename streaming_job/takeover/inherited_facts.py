"""The merchant facts of a first state that comes from a replay's checkpoint.

The successor's groups continue the facts of the replay's: on its topic, under its id, from where it was
stopped. So the replay's last Kafka transactions must be in the state: later facts would be written twice.
"""

from contextlib import closing

import orjson

from feature_store.state.codec import StateDamagedError
from feature_store.state.journal import Meta, PieceSink, PieceStore
from streaming_job.facts.group_facts import AUTHOR
from streaming_job.facts.hours import OPEN
from streaming_job.facts.table import COUNTED, PROMISES, REPORTED
from streaming_job.group.opening import Opening
from streaming_job.group.stored_positions import positions_of
from streaming_job.progress import last_record
from streaming_job.progress.last_record import COMMIT_ID, FACTS_COMMIT, LAST
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.transaction.written import WrittenReader


def copy_facts(old: Meta, pieces: PieceStore, new: Meta, store: PieceSink) -> None:
    """Copy the facts of a key group to the group of the same number.

    Raises:
        CheckpointError: the replay was stopped while it was behind its own output, or its state, of another
            release, does not name the writer of its facts.
        StateDamagedError: a piece is missing.
    """
    last = orjson.loads(old.extra.get(LAST, "null"))
    # if a loop has committed nothing since it was opened, its state has the last record of an earlier one
    is_newest = last is not None and last["commit_id"] == old.extra.get(COMMIT_ID)
    if not is_newest or positions_of(old) != last_record.positions(last):
        raise CheckpointError(
            "the state of the replay is behind the merchant facts that it has written: it was stopped soon "
            "after a crash; let it catch up (fraud replay start <name> --follow), and begin with an empty "
            "checkpoint"
        )
    if AUTHOR not in old.extra:
        raise CheckpointError(
            "the state of the replay does not say under which id it has written its merchant facts: it was "
            "saved by an older release; have this release continue the replay, or begin another one, then "
            "take over with an empty checkpoint"
        )
    for prefix in (COUNTED, REPORTED, OPEN):
        new.extra[prefix] = old.extra[prefix]
        for number, _ in old.extra[prefix]:
            if (blob := pieces.get(name := f"{prefix}{number}")) is None:
                raise StateDamagedError(f"state piece {name} is missing; restore the checkpoint")
            store.put(name, blob)
    new.extra |= {name: old.extra[name] for name in (PROMISES, AUTHOR)}
    new.extra[FACTS_COMMIT] = last["commit_id"]


def require_stopped(opening: Opening, meta: Meta) -> None:
    """Check that the replay of which the state is has written no facts since.

    Raises:
        CheckpointError: it has, or it runs; or this job has written facts itself since.
        SinkError: the brokers do not answer.
    """
    replay = opening.settings.model_copy(update={"job_id": meta.extra.get(AUTHOR, opening.settings.job_id)})
    with closing(WrittenReader(replay, opening.group, sorted(opening.own_partitions))) as reader:
        last = max((mark.commit_id for mark in reader.marks()), default=0)
    if meta.extra.get(FACTS_COMMIT) == last or (not opening.takes_over and not last):
        return  # after the takeover the replay may have been dropped
    if not opening.takes_over:
        raise CheckpointError(
            f"job {replay.job_id} has gone on writing facts during the takeover, so this job cannot continue "
            "them: let the former job go on without facts (fraud replay back <name>), or another replay take "
            "over"
        )
    raise CheckpointError(
        f"the facts of job {replay.job_id} do not end where this state does: stop the replay with Ctrl-C "
        "or SIGTERM, and begin with an empty checkpoint; a job that has kept merchant facts itself "
        "cannot take its output back, only a replay of it can take over"
    )
