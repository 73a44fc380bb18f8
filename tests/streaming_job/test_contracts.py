"""The schemas list every value that the code writes."""

from collections.abc import Iterable
from typing import Any

import pytest

from models.rollouts.events import Type
from streaming_job.contracts import Contract, Reason, schema

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("contract", "path", "values"),
    [
        (Contract.DEAD_LETTER, ("reason",), Reason),
        (Contract.JOB_PROGRESS, ("dead_letters_by_reason", "propertyNames"), Reason),
        (Contract.MODEL_ROLLOUT, ("type",), Type),
    ],
)
def test_a_schema_lists_every_value_of_the_code(
    contract: Contract, path: tuple[str, ...], values: Iterable[str]
) -> None:
    field: Any = schema(contract)["properties"]
    for name in path:
        field = field[name]
    assert field["enum"] == [str(value) for value in values]
