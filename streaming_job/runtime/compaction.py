"""Up to when compaction may have removed versions of profiles, as a first start finds their topic."""

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its documented names
    ConfigResource,
    ResourceType,
)

from feature_store.archive.reader import Archive
from streaming_job.contracts.topics import TABLE
from streaming_job.log import clients
from streaming_job.log.clients import describe
from streaming_job.runtime.preconditions import TIMEOUT_S, StartUpError
from streaming_job.settings import JobSettings

POLICY = "cleanup.policy"


def profiles_compacted_before(settings: JobSettings) -> int | None:
    """Return the arrival, ms, before which compaction may have removed versions; None: it has removed none.

    A version is removed only after a newer one has reached the age `min.compaction.lag.ms`, so those that
    were in force since then are there. Of a log that begins in an archive, the archive's beginning counts.

    Raises:
        StartUpError: the brokers do not answer.
        ArchiveError: the archive is damaged.
    """
    topic = settings.topics.profiles
    if settings.log_archive:
        archive = Archive(settings.log_archive)
        if topic in archive.topics.values():
            manifests = [archive.manifest("profiles", part) for part in archive.partitions("profiles")]
            return max((manifest.compacted_before_ms for manifest in manifests), default=0) or None
    if "compact" not in (_policy(settings, topic) or "compact"):
        return None
    return int(time.time() * 1000) - TABLE["profiles"].retention.compaction_lag_ms


def _policy(settings: JobSettings, topic: str) -> str | None:
    """Return the topic's cleanup policy; None if the job has no permission to read it."""
    admin = clients.admin(settings)
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    try:
        entries: dict[str, Any] = answer.result(timeout=TIMEOUT_S)
    except (KafkaException, TimeoutError) as fault:
        is_refused = (
            isinstance(fault, KafkaException)
            and fault.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        )
        if is_refused:
            return None
        raise StartUpError(
            f"the settings of {topic} cannot be read ({describe(fault)}); check the brokers"
        ) from fault
    return str(entries[POLICY].value)
