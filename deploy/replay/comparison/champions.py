"""The champions of a job by arrival, from its rollout topic."""

from contextlib import closing

import numpy as np
from confluent_kafka import TopicPartition
from numpy.typing import NDArray

from deploy.replay.comparison.causes import Deciding
from streaming_job.decide.rollout_history import RolloutHistory, RolloutRecord
from streaming_job.log import clients, follow
from streaming_job.progress import last_record
from streaming_job.progress.last_record import Record
from streaming_job.settings import JobSettings


def deciding(settings: JobSettings, record: Record) -> Deciding:
    """Read a job's rollouts.

    Args:
        record: progress record of the job's key group 0, which names the features that its release computes,
            and the proposals that it does not use.

    Raises:
        KafkaException: the topic cannot be read.
    """
    topic = settings.topics.model_rollouts
    with closing(clients.reader(settings, "fraud-replay")) as reader:
        records = [
            RolloutRecord(message.timestamp()[1], message.offset() or 0, message.value(), message.key())
            for message in follow.to_end(reader, TopicPartition(topic, 0, 0))
        ]
    reasons = last_record.set_aside(record)
    history = RolloutHistory.judged(records, reasons, settings.topics, record["features"])

    def champions(arrivals: NDArray[np.int64]) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
        plans, numbers = history.in_force(arrivals)
        models = np.array([plan.champion.model.digest for plan in plans], dtype=object)
        policies = np.array([plan.champion.policy.digest() for plan in plans], dtype=object)
        return models[numbers], policies[numbers]

    return champions
