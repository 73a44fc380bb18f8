"""Settings from `FRAUD_...` variables, and what is said when they are wrong."""

import json
from typing import TypeVar

import pydantic_settings
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from feature_store.errors import FraudError

S = TypeVar("S", bound=BaseSettings)


class SettingsError(FraudError):
    """A FRAUD_... variable is missing or wrong, or Spark does not take it."""


def settings(kind: type[S]) -> S:
    """Settings from the environment.

    Raises:
        SettingsError: some are missing or wrong; names them, but not their values, which may be secret.
    """
    try:
        return kind()
    except pydantic_settings.SettingsError as fault:
        # it names the field, in quotes, and in its cause what is wrong with the JSON
        field = str(fault).split('"')[1::2][:1]
        name = f"FRAUD_{field[0].upper()}" if field else "a FRAUD_... variable"
        raise SettingsError(f"{name}: no JSON object; see docs/operations.md") from None
    except ValidationError as fault:
        faults = (
            f"FRAUD_{'__'.join(str(part) for part in one['loc']).upper()}: {one['msg'].lower()}"
            for one in fault.errors()
        )
        raise SettingsError(f"{'; '.join(faults)}; see docs/operations.md") from None


def client_settings(text: str) -> dict[str, str]:
    """Kafka client settings as FRAUD_KAFKA has them, a JSON object.

    Raises:
        SettingsError: it is none.
    """
    try:
        return {str(name): str(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError):
        example = '{"security.protocol": "SSL"}'
        raise SettingsError(f"FRAUD_KAFKA or --kafka: no JSON object such as {example}") from None
