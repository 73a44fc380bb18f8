"""Settings from `FRAUD_...` variables, and the errors about wrong ones."""

import difflib
import json
from collections.abc import Iterable
from typing import Any, TypeVar

import pydantic_settings
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from feature_store.errors import FraudError
from streaming_job.contracts.topics import Topics

S = TypeVar("S", bound=BaseSettings)
PREFIX = "FRAUD_"
OTHER_VARIABLES = (
    "DATA_DIR", "HANDBOOK_DIR", "HYPOTHESIS", "IVY_SETTINGS", "MAX_PROGRESS_AGE_S", "MAX_SILENCE_S",
    "OFFSETS_INTERVAL_S", "LIMIT_FLOOR_S", "LIMIT_CEILING_S", "VERDICT_WINDOW_S", "IDLE_AFTER_S", "RUNBOOK",
    "POSTGRES_DSN", "CRASH_POINTS", "TOKENS_FILE", "TLS_CERT", "TLS_KEY", "FOUR_EYES",
    "OPERATOR_MAX_SHARE_BP", "INSECURE_HTTP", "RATE_PER_S", "RATE_BURST", "MAX_BODY_BYTES", "SIDECAR_TOKEN",
    "ARCHIVE", "REGISTRY_AUTHORIZATION",
)  # fmt: skip
"""Names, without PREFIX, of variables that are no settings of the job, but of the sidecar, the stack, the
simulator, the load tests or the tests."""


class SettingsError(FraudError):
    """A variable is missing, wrong or unknown, or the directory that it names cannot be used."""


def settings(kind: type[S], **given: Any) -> S:
    """Read settings from the environment.

    Args:
        given: settings that are not read there.

    Raises:
        SettingsError: some are missing or wrong; it names them, but not their values, which may be secret.
    """
    try:
        return kind(**given)
    except pydantic_settings.SettingsError as fault:
        # its text has the field's name in quotes
        field = str(fault).split('"')[1::2][:1]
        name = f"FRAUD_{field[0].upper()}" if field else "a FRAUD_... variable"
        raise SettingsError(f"{name}: no JSON object; see docs/settings.md") from None
    except ValidationError as fault:
        faults = (
            f"FRAUD_{'__'.join(str(part) for part in error['loc']).upper()}: {error['msg'].lower()}"
            for error in fault.errors()
        )
        raise SettingsError(f"{'; '.join(faults)}; see docs/settings.md") from None


def refuse_unknown(variables: Iterable[str]) -> None:
    """Refuse variables with the prefix FRAUD_ that nothing reads, because they are probably misspelt.

    Raises:
        SettingsError: some are unknown; the error suggests the nearest known names.
    """
    own_variables = sorted({name.upper() for name in variables if name.upper().startswith(PREFIX)})
    if not own_variables:
        return
    # imported here, because the import is slow, and needed only if there are such variables
    from streaming_job.settings import JobSettings

    known = {f"{PREFIX}{name.upper()}" for name in (*JobSettings.model_fields, *OTHER_VARIABLES)}
    known |= {f"{PREFIX}TOPICS__{name.upper()}" for name in Topics.model_fields}
    faults = []
    for name in own_variables:
        if name not in known:
            nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
            faults.append(f"{name} is no setting; did you mean {nearest[0]}?")
    if faults:
        raise SettingsError(f"{' '.join(faults)} Unset unknown variables, or see docs/settings.md")


def client_settings(text: str) -> dict[str, str]:
    """Parse Kafka client settings, a JSON object as in FRAUD_KAFKA.

    Raises:
        SettingsError: the text is no JSON object.
    """
    try:
        return {str(name): str(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError):
        example = '{"security.protocol": "SSL"}'
        raise SettingsError(f"FRAUD_KAFKA or --kafka: no JSON object such as {example}") from None
