"""The preconditions of a start: brokers, topics and a rollout."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from feature_store.errors import FraudError
from streaming_job.decide.rollout_history import NoRolloutError
from streaming_job.settings import JobSettings

TIMEOUT_S = 15.0
REFUSED = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
"""Errors of credentials and protocol."""


class StartUpError(FraudError):
    """Something that the job needs at its start is missing or does not fit."""


def require_inputs(settings: JobSettings) -> None:
    """Check brokers, topics and rollouts, so that a start fails at once with the reason.

    Raises:
        StartUpError: brokers do not answer or refuse the credentials or the protocol; or topics are missing,
            or the job has no permission on them.
        NoRolloutError: no model has been rolled out yet.
    """
    faults: list[KafkaError] = []
    # no log output: errors are raised below
    client: dict[str, Any] = {
        "log_level": 0,
        **settings.kafka,
        "bootstrap.servers": settings.bootstrap_servers,
        "error_cb": faults.append,
    }
    admin = AdminClient(client)
    try:
        existing = admin.list_topics(timeout=TIMEOUT_S).topics
        missing = sorted({*settings.topics.job_topics, *settings.tables} - set(existing))
        if missing:
            raise StartUpError(
                f"topics are missing, or the job has no permission on them: {', '.join(missing)}; "
                "create them, or grant it, see docs/operations.md"
            )
        rollouts = TopicPartition(settings.topics.model_rollouts, 0)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = admin.list_offsets({rollouts: latest}, request_timeout=TIMEOUT_S)
        if ends[rollouts].result().offset == 0:
            raise NoRolloutError(
                "no model has been rolled out; run `fraud rollouts promote`, then start the job"
            )
    except KafkaException as fault:
        admin.poll(0)  # collects the client's background errors
        for error in faults:
            if error.code() in REFUSED:
                raise StartUpError(
                    f"Kafka at {settings.bootstrap_servers} refuses the credentials or the protocol "
                    f"({error.str()}); correct FRAUD_KAFKA"
                ) from fault
        raise StartUpError(
            f"no answer from Kafka at {settings.bootstrap_servers} ({fault.args[0].str()}); "
            "check address and brokers"
        ) from fault
