"""Check that a log was decided with the settings by which an audit judges it."""

from collections.abc import Mapping
from typing import Any

from feature_store.errors import FraudError
from loadtests.audit.commits import is_seam
from loadtests.audit.content import content_of
from loadtests.oracle import Record
from streaming_job.progress.record import ROLLOUT_TOPICS
from streaming_job.settings import JobSettings

JUDGED = ("allowed_lateness_ms", "allowed_skew_ms", "refuse_card_numbers", "topics__record_schemas")
"""Settings that the oracle judges by, among those that may change during the life of a job."""


class OtherSettingsError(FraudError):
    """The job decided with another lateness, skew or label delay, or other refused card numbers.

    Set the job's value. A log that was decided with both cannot be audited across the change.
    """


class MixedRolloutsError(FraudError):
    """Rollouts of two topics have decided in one state: a replay with other ones began with a checkpoint.

    No audit knows where the second ones began. Replay from the beginning of the log, or with `--archive`,
    instead of with `--from`.
    """


def require_one_topic(row: Mapping[str, Any]) -> None:
    """Check that rollouts of only one topic have decided in the state of a progress record's job.

    Raises:
        MixedRolloutsError: those of several topics have.
    """
    if len(topics := row.get(ROLLOUT_TOPICS, ())) > 1:
        raise MixedRolloutsError(
            f"query {row.get('query_id')} began with a checkpoint that the rollouts of {topics[0]} had "
            f"decided, and decides by those of {topics[-1]}: which of them have decided a transaction in its "
            "state is unknown, so its alerts cannot be audited; see docs/replay.md, Switch and back"
        )


def require_settings(record: Record, settings: JobSettings) -> None:
    """Check a progress record; one that is no JSON object is left to the other checks.

    Raises:
        OtherSettingsError: the job decided with other settings when it wrote the record.
        MixedRolloutsError: see `require_one_topic`.
    """
    try:
        row: Mapping[str, Any] = content_of(record.value)
        require_one_topic(row)
        used: Mapping[str, Any] = row["settings"]
        if is_seam(row):
            return
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    if "label_delay_ms" in row and (delay := row["label_delay_ms"]) != settings.merchant_delay_ms:
        raise OtherSettingsError(
            f"the job decided with merchant facts, FRAUD_LABEL_DELAY_MS={delay} (job-progress offset "
            f"{record.offset}), this audit judges by {settings.merchant_delay_ms}: give the job's value; a "
            "log that was decided with both cannot be audited across it, see docs/operations.md, Audit"
        )
    current = settings.decisive
    for name in JUDGED:
        if used.get(name) != current.get(name):
            variable = f"FRAUD_{name.upper()}"
            raise OtherSettingsError(
                f"the job decided with {variable}={used.get(name)} (job-progress offset {record.offset}), "
                f"this audit judges by {current.get(name)}: give the job's value; a log that was decided "
                "with both cannot be audited across the change, see docs/operations.md, Audit"
            )
