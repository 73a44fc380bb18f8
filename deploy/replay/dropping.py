"""The end of a replay: deletes what belongs to it, and says what that was."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from deploy.local import topics as broker
from deploy.replay import checkpoints, record
from deploy.replay.record import Replay, ReplayError
from deploy.replay.running import end_leftover
from deploy.replay.switching import is_successors, writers
from streaming_job.log.clients import describe
from streaming_job.settings import JobSettings

GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)
REQUEST_S = 30.0


def drop(live: JobSettings, replay: Replay, *, ends_way_back: bool, wrote: Callable[[str], object]) -> None:
    """Delete topics, consumer group, checkpoint and files of a replay; may be repeated after it was killed.

    After a switch without a way back, the topics of rollouts and merchant facts, and the successor's
    checkpoint, are live: they stay. After a way back, or a switch to another replay, the topic of rollouts
    stays, too: by it audits judge what the successor has decided. The successor's checkpoint stays while it
    is the way back of another replay.

    Args:
        ends_way_back: whether to give up the way back.
        wrote: called with a line for each thing that was deleted or left.

    Raises:
        ReplayError: a way back is promised, or a topic or the consumer group cannot be deleted.
        AccessError: the same of a checkpoint, or it cannot be read.
        CheckpointError: the successor's checkpoint is damaged.
        SettingsError: Spark, which reads checkpoints at URIs, does not start.
    """
    query, successor = writers(live) if replay.live_query else ("", "")
    is_away = bool(replay.live_query) and (query != replay.live_query or bool(successor))
    if is_away and not ends_way_back:
        way = f"the way back to checkpoint {replay.checkpoint}"
        if query != replay.live_query and not is_successors(live, replay, query):
            raise ReplayError(
                f"the live output is of another job, query {query}: give up {way} by --end-way-back"
            )
        raise ReplayError(
            f"the live output is of the replay, and {way} is promised; run `fraud replay back {replay.name}` "
            "first, or give --end-way-back"
        )
    if successor and query == replay.live_query:
        raise ReplayError(
            f"the switch to {replay.name}, or the way back, was not finished; repeat it, then drop the replay"
        )
    end_leftover(replay)
    settings, after = replay.settings(live), replay.successor(live)
    with checkpoints.opened(settings) as opened:
        # otherwise another replay was switched to since
        is_live = is_away and opened.query_id(after.checkpoint) in (query, successor, None)
        fields: Iterable[str] = replay.own_fields
        live_fields = ("model_rollouts", "merchant_facts") if settings.merchant_facts else ("model_rollouts",)
        if is_live:
            fields = [field for field in fields if field not in live_fields]
        elif replay.live_query and replay.has_own_rollouts:
            fields = [field for field in fields if field != "model_rollouts"]
            wrote(f"left, because alerts of the switch are audited by it: {settings.topics.model_rollouts}")
        client = broker.admin(live.bootstrap_servers, live.kafka)
        topics = [getattr(settings.topics, field) for field in fields]
        _delete("topic", client.delete_topics(topics, operation_timeout=REQUEST_S), wrote)
        _delete("consumer group", client.delete_consumer_groups([settings.job_id]), wrote)
        wrote(f"transactional ids {settings.job_id}-0 and following: the brokers forget them by themselves")
        needing = _needing(live, replay, after.checkpoint)
        is_over = bool(replay.live_query) and not is_live and not needing
        for location in (settings.checkpoint, *([after.checkpoint] if is_over else [])):
            if opened.remove(location):
                wrote(f"checkpoint {location}")
    if needing and not is_live:
        wrote(f"left, because it is the way back of {', '.join(needing)}: {after.checkpoint}")
    if is_live:
        kept = [getattr(after.topics, field) for field in live_fields]
        wrote(f"left, because they are live: {', '.join(kept)}, {after.checkpoint}")
    if is_away:
        wrote(f"left, and not used any more: {replay.checkpoint}")
    shutil.rmtree(replay.file.parent)
    wrote(f"directory {replay.file.parent}")


def _needing(live: JobSettings, replay: Replay, checkpoint: str) -> list[str]:
    """Return the names of other replays whose way back is a checkpoint."""
    others = (record.find(live.work_dir, name) for name in record.names(live.work_dir) if name != replay.name)
    return [other.name for other in others if other is not None and other.checkpoint == checkpoint]


def _delete(what: str, answers: Mapping[str, Any], wrote: Callable[[str], object]) -> None:
    for name, answer in answers.items():
        try:
            answer.result(REQUEST_S)
        except KafkaException as fault:
            if fault.args[0].code() in GONE:
                continue
            raise ReplayError(
                f"{what} {name} cannot be deleted ({describe(fault)}); give the permission, then repeat"
            ) from fault
        wrote(f"{what} {name}")
