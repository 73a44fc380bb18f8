"""The preconditions of a start: brokers, topics with their settings, and a rollout."""

import logging
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its documented names
    ConfigResource,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from feature_store.errors import FraudError
from streaming_job.decide.rollout_history import NoRolloutError
from streaming_job.log import clients
from streaming_job.log.clients import AdminClient, describe
from streaming_job.protocol.login import Login, addresses
from streaming_job.runtime.topic_comparison import Actual, at_start
from streaming_job.settings import JobSettings

log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
REFUSED = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
"""Errors of credentials and protocol."""


class StartUpError(FraudError):
    """Something that the job needs at its start is missing or does not fit.

    The brokers do not answer or refuse the credentials; topics or permissions are missing; a topic's settings
    break a guarantee of the job; Debezium's first snapshot does not end; the producers' partitioner is not
    `FRAUD_PARTITIONER`; the checkpoint began with other settings, or with another number of partitions.

    `fraud job topics` and `fraud job permissions` print what is missing; `FRAUD_WAIT_FOR_SNAPSHOT_S=0` skips
    the wait for the snapshot. More partitions need a drain and a takeover
    ([operations](operations.md#more-partitions-another-partitioner-another-topic)).
    """


def require_inputs(settings: JobSettings) -> None:
    """Check brokers, topics and rollouts, so that a start fails at once with the reason.

    Raises:
        StartUpError: brokers do not answer or refuse the credentials or the protocol; or topics are missing,
            or the job has no permission on them, or their settings break a guarantee of the job.
        NoRolloutError: no model has been rolled out yet.
        LoginError: the transactional producer could not connect with these settings.
    """
    Login.from_settings(settings.kafka)
    addresses(settings.bootstrap_servers)
    faults: list[KafkaError] = []
    admin = clients.admin(settings, faults.append)
    try:
        existing = admin.list_topics(timeout=TIMEOUT_S).topics
        needed = {*settings.topics.job_topics, *settings.tables}
        missing = sorted(needed - set(existing))
        if missing:
            raise StartUpError(
                f"topics are missing, or the job has no permission on them: {', '.join(missing)}; "
                "create them, or grant it, see docs/operations.md"
            )
        _require_retired(settings, existing)
        rollouts = TopicPartition(settings.topics.model_rollouts, 0)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = admin.list_offsets({rollouts: latest}, request_timeout=TIMEOUT_S)
        if ends[rollouts].result().offset == 0:
            raise NoRolloutError(
                "no model has been rolled out; run `fraud rollouts propose --promote`, then start the job"
            )
        _require_settings(admin, settings, {name: existing[name] for name in sorted(needed)})
    except KafkaException as fault:
        admin.poll(0)  # collects the client's background errors
        for error in faults:
            if error.code() in REFUSED:
                raise StartUpError(
                    f"Kafka at {settings.bootstrap_servers} refuses the credentials or the protocol "
                    f"({error.str()}); correct FRAUD_KAFKA"
                ) from fault
        raise StartUpError(
            f"no answer from Kafka at {settings.bootstrap_servers} ({describe(fault)}); "
            "check address and brokers"
        ) from fault


def _require_retired(settings: JobSettings, existing: Collection[str]) -> None:
    used = {*settings.topics.job_topics, *settings.tables}
    for retired in settings.retired_transactions:
        if retired in used:
            # its records would be both decided and refused
            raise StartUpError(
                f"FRAUD_RETIRED_TRANSACTIONS names {retired}, a topic that the job reads or writes now; "
                "remove it there: the setting names topics that the transactions have left"
            )
        if retired not in existing:
            raise StartUpError(
                f"the topic {retired} of FRAUD_RETIRED_TRANSACTIONS does not exist, or the job has no "
                "permission on it; correct the setting, or remove the topic there if it was deleted"
            )


def _require_settings(
    admin: AdminClient, settings: JobSettings, existing: Mapping[str, TopicMetadata]
) -> None:
    """Compare the topics with what the job needs, as `fraud job topics` does; warn of what is only unwise."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in existing]
    answers = admin.describe_configs(resources, request_timeout=TIMEOUT_S)
    breaking, unknown = [], []
    for resource, answer in answers.items():
        name = resource.name
        try:
            entries = answer.result(timeout=2 * TIMEOUT_S)
        except KafkaException as fault:
            if fault.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            unknown.append(name)
            continue
        actual = Actual.of(entries, existing[name])
        for difference in at_start(settings.topics, name, actual, settings.arrival):
            if difference.is_breaking:
                breaking.append(difference.text)
            else:
                log.warning("%s", difference)
    if unknown:
        log.warning(
            "the settings of %s are not checked: the job has no permission DescribeConfigs on these topics; "
            "`fraud job permissions` prints what it needs",
            ", ".join(unknown),
        )
    if breaking:
        raise StartUpError(
            f"the settings of topics break guarantees of the job: {'; '.join(breaking)} (for an archive "
            "whose records keep their arrivals set FRAUD_ARRIVAL=create; see docs/operations.md, Topics)"
        )
