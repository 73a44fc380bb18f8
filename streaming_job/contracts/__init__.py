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
    """A rollout, schema, label, alert, dead letter or audit record breaks its contract's schema.

    Correct the record's producer.
    """


class Reason(StrEnum):
    """The reasons for which a record becomes a dead letter: each what is wrong, then what to do.

    A transaction is checked in this order, except that all checks from `missing_field` to `negative_amount`
    are made on one field before the next.
    """

    EMPTY_VALUE = "empty_value"
    """Null or zero bytes.

    Find the producer; transactions have no tombstones.
    """
    RECORD_TOO_LARGE = "record_too_large"
    """A value of more than 65,536 bytes; also of a rollout or schema, because the state keeps it for ever.

    Send the contract's fields only; those of a transaction need less than a hundredth of the limit.
    """
    UNKNOWN_SCHEMA = "unknown_schema"
    """The transaction names a schema that had not been published when it arrived ([schemas](schemas.md)).

    Publish the schema with `fraud schemas publish`, then replay the letters; have producers wait for it.
    """
    MALFORMED_AVRO = "malformed_avro"
    """The bytes after the schema's id are no record of this Avro schema, or more than one.

    Find the producer: it wrote with another schema than it names, or the record is truncated.
    """
    INVALID_UTF8 = "invalid_utf8"
    """The bytes are not UTF-8.

    Set the producer's encoding.
    """
    MALFORMED_JSON = "malformed_json"
    """Not JSON by the grammar of Python's `json`; or nested more than 256 deep, or with an integer of more
    than 4,300 digits.

    Look at the raw bytes; often the record is truncated, or written by another serialiser.
    """
    NOT_AN_OBJECT = "not_an_object"
    """JSON, but an array, a string, a number, `true`, `false` or `null`.

    Send one object per record.
    """
    DUPLICATE_FIELD = "duplicate_field"
    """A field that the job uses occurs more than once; it is unknown which value was meant.

    Correct the serialiser.
    """
    MISSING_FIELD = "missing_field"
    """A required field is missing.

    Send all required fields.
    """
    WRONG_TYPE = "wrong_type"
    """A field has another type than in the contract, for example null, or 1.0 where it has an integer.

    Send the contract's types.
    """
    INVALID_VALUE = "invalid_value"
    """The value breaks the contract's length, pattern or range. Of a rollout or schema: the record breaks its
    contract in any other way than by size, for example because it is not JSON.

    See the detail and the schema.
    """
    NON_FINITE_NUMBER = "non_finite_number"
    """NaN, Infinity, or an amount beyond float64.

    Find where the amount was computed.
    """
    NEGATIVE_AMOUNT = "negative_amount"
    """The amount is below 0.

    Do not send refunds; they are not authorisation requests.
    """
    CARD_NUMBER = "card_number"
    """card_id is or holds a card number, or transaction_id or merchant_id holds one as it is printed or on a
    magnetic stripe ([decision 28](decisions/028-card-numbers-are-refused.md)). The dead letter has no key,
    and size and SHA-256 instead of the value.

    Send tokens. If tokens consist of 13 to 19 digits, one in ten looks like a card number: set
    `FRAUD_REFUSE_CARD_NUMBERS=false`. To send a corrected record, put value and key into the line of the
    `list --raw` file, which fetches the record from the log.
    """
    TOO_LATE = "too_late"
    """The event time is more than the allowed lateness (7 d) before arrival.

    Correct the clock that set the event time, or send transactions sooner; or raise
    `FRAUD_ALLOWED_LATENESS_MS`.
    """
    FUTURE_EVENT_TIME = "future_event_time"
    """The event time is more than the allowed skew (5 min) after arrival.

    Correct the clock that set the event time.
    """
    WRONG_PARTITION = "wrong_partition"
    """The partitioner gives the card another partition; the detail has both. Of a rollout or schema: not in
    partition 0.

    Key by card_id, with the partitioner that `FRAUD_PARTITIONER` names: `murmur2` is the default of Java
    producers (in librdkafka `murmur2_random`), `crc32` that of librdkafka. Then replay the letter: it goes to
    the right partition. Write rollouts with `fraud rollouts`, schemas with `fraud schemas`.
    """
    RETIRED_TOPIC = "retired_topic"
    """A transaction in a topic that the job has left for another one (`FRAUD_RETIRED_TRANSACTIONS`): a
    producer still writes there.

    Have that producer write to the new topic. Then replay the letters: they go there, too.
    """
    UNKNOWN_TRANSACTION = "unknown_transaction"
    """Of a label: the card has no such transaction in its history ([labels](labels.md)).

    Compare both ids with those of the transaction; resend labels that arrived before it.
    """
    LABEL_TOO_OLD = "label_too_old"
    """Of a label: it came 36 days or more after the event time of its transaction, which the state no longer
    has.

    Nothing: it is no fault, and no alert counts it. Train on the archive, in which it counts.
    """
    INCOMPATIBLE_FEATURES = "incompatible_features"
    """The release does not compute the model's features, or not in these versions; the detail names them.

    Promote a model without them; or start a release that computes them and promote again, because the refusal
    is final. Merchant label features need a job that keeps merchant facts; [a
    replay](operations.md#merchant-facts-and-the-label-delay) gives it them.
    """
    MODEL_UNAVAILABLE = "model_unavailable"
    """The registry has no such version; or registry or files could not be reached for a minute, and another
    rollout can decide meanwhile (if none can, the job ends instead).

    Repair the registry or correct `FRAUD_MLFLOW_TRACKING_URI`, then promote again.
    """
    MODEL_REFUSED = "model_refused"
    """The registry's files are not those that were rolled out, cannot be read or trusted, or do not reproduce
    their golden scores.

    Train or register again, then promote that version.
    """
    UNKNOWN_ROLLOUT = "unknown_rollout"
    """An event of a rollout that does not exist, or whose proposal was refused.

    Look up the rollout's id in the alerts or `/v1/progress`.
    """
    LAST_ROLLOUT = "last_rollout"
    """A withdrawal that would leave no model that decides.

    Promote another model first.
    """
    ROLLOUT_CONFLICT = "rollout_conflict"
    """The rollout's phase does not allow the event, or it conflicts with another, for example by a wrong
    `seq`, a champion that is not in force, or a proposal while a rollout is open; the detail says how.

    Read the rollout, then send the step again.
    """
    SECOND_PERSON_MISSING = "second_person_missing"
    """The step counts as a promotion, and has no approval of a second person, which the log requires; the
    detail says why it counts.

    Let somebody else take the step; see [authority](rollouts.md#authority).
    """


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
