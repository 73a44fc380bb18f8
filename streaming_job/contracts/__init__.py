"""The contracts of the topics: names, keys and versioned JSON Schemas.

The schemas are beside this file, one for each record type and version. Producers write the newest version;
readers ignore unknown fields.
"""

import json
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
from referencing import Registry, Resource

from feature_store.errors import FraudError
from streaming_job.contracts.topics import Contract

__all__ = ["Contract", "ContractError", "Reason", "schema", "shared", "validate"]


class ContractError(FraudError):
    """A record does not keep its contract."""


class Reason(StrEnum):
    """The reasons for which a record becomes a dead letter."""

    EMPTY_VALUE = "empty_value"
    RECORD_TOO_LARGE = "record_too_large"
    INVALID_UTF8 = "invalid_utf8"
    MALFORMED_JSON = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    DUPLICATE_FIELD = "duplicate_field"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    INVALID_VALUE = "invalid_value"
    NON_FINITE_NUMBER = "non_finite_number"
    NEGATIVE_AMOUNT = "negative_amount"
    CARD_NUMBER = "card_number"
    TOO_LATE = "too_late"
    FUTURE_EVENT_TIME = "future_event_time"
    WRONG_PARTITION = "wrong_partition"
    UNKNOWN_TRANSACTION = "unknown_transaction"
    LABEL_TOO_OLD = "label_too_old"
    INCOMPATIBLE_FEATURES = "incompatible_features"
    MODEL_UNAVAILABLE = "model_unavailable"
    MODEL_REFUSED = "model_refused"
    UNKNOWN_ROLLOUT = "unknown_rollout"
    LAST_ROLLOUT = "last_rollout"
    ROLLOUT_CONFLICT = "rollout_conflict"
    SECOND_PERSON_MISSING = "second_person_missing"


@cache
def schema(contract: Contract) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a record type."""
    return _loaded(f"{contract.value}.json")


@cache
def shared() -> dict[str, Any]:
    """Return the definitions that several schemas refer to."""
    return _loaded("policy.json")


def _loaded(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(files(__name__).joinpath(name).read_text())
    return loaded


_BASE = jsonschema.Draft202012Validator
_STRICT = jsonschema.validators.extend(
    _BASE,
    # the job refuses 1.0 where an integer is due, though to JSON Schema it is one
    type_checker=_BASE.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


@cache
def _validator(contract: Contract) -> Any:
    registry = Registry().with_resource("policy.json", Resource.from_contents(shared()))
    return _STRICT(schema(contract), registry=registry, format_checker=_BASE.FORMAT_CHECKER)


def _rank(error: jsonschema.ValidationError) -> tuple[Any, ...]:
    """Prefer what the schema demands of every record to what it demands under a condition."""
    return -len(error.absolute_path), -len(error.absolute_schema_path), error.validator == "required"


def validate(contract: Contract, record: Any) -> None:
    """Check one decoded record against its schema.

    For tests, tools and control events; the hot path has vectorised checks, tested against the schema.

    Raises:
        ContractError: the record breaks its contract; the error names the worst violation and its path.
    """
    fault = jsonschema.exceptions.best_match(_validator(contract).iter_errors(record), key=_rank)
    if fault is not None:
        what = f"not a {contract.value}: {fault.json_path}: {fault.message}"
        raise ContractError(f"{what}; correct the producer")
