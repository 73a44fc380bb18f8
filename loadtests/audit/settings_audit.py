"""Check that a log was decided with the settings by which an audit judges it."""

import json
from collections.abc import Mapping
from typing import Any

from feature_store.errors import FraudError
from loadtests.audit.commits import is_seam
from loadtests.oracle import Record
from streaming_job.settings import JobSettings

JUDGED = ("allowed_lateness_ms", "allowed_skew_ms", "refuse_card_numbers")
"""Settings that the oracle judges by, among those that may change during the life of a job."""


class OtherSettingsError(FraudError):
    """The job decided with another lateness, skew or label delay, or other refused card numbers.

    Set the job's value. A log that was decided with both cannot be audited across the change.
    """


def require_settings(record: Record, settings: JobSettings) -> None:
    """Check a progress record; one that is no JSON object is left to the other checks.

    Raises:
        OtherSettingsError: the job decided with other settings when it wrote the record.
    """
    try:
        row: Mapping[str, Any] = json.loads(record.value or b"")
        used: Mapping[str, Any] = row["settings"]
        if is_seam(row):
            return
    except (ValueError, KeyError, TypeError):
        return
    if "label_delay_ms" in row and (delay := row["label_delay_ms"]) != settings.merchant_delay_ms:
        raise OtherSettingsError(
            f"the job decided with merchant facts, FRAUD_LABEL_DELAY_MS={delay} (job-progress offset "
            f"{record.offset}), this audit judges by {settings.merchant_delay_ms}: give the job's value; a "
            "log that was decided with both cannot be audited across it, see docs/operations.md, Audit"
        )
    current = settings.decisive
    for name in JUDGED:
        if used.get(name) != current[name]:
            variable = f"FRAUD_{name.upper()}"
            raise OtherSettingsError(
                f"the job decided with {variable}={used.get(name)} (job-progress offset {record.offset}), "
                f"this audit judges by {current[name]}: give the job's value; a log that was decided with "
                "both cannot be audited across the change, see docs/operations.md, Audit"
            )
