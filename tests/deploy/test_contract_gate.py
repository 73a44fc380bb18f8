"""The gate of the contracts, judged by records: old ones under a new schema, new ones under an old one."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deploy import contract_gate
from streaming_job.contracts import Contract, schema
from streaming_job.contracts.compatibility import KNOWN, KeywordError, narrowings

pytestmark = pytest.mark.unit

Change = Callable[[dict[str, Any]], object]
NAMES = {"enum": ["x"]}
MODEL = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OLD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 8, "pattern": "^[a-z]*$"},
        "count": {"type": "integer", "minimum": 0, "maximum": 9},
        "kind": {"enum": ["a", "b"]},
        "version": {"const": 1},
        "parts": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "by_name": {"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": NAMES},
        "inner": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}, "required": ["a"]},
        "model": {"$ref": "#/$defs/model"},
        "either": {"anyOf": [{"$ref": "#/$defs/other"}, {"type": "null"}]},
    },
    "required": ["id", "kind"],
    "allOf": [{"if": {"properties": {"kind": {"const": "b"}}}, "then": {"required": ["count"]}}],
    "$defs": {"model": MODEL, "other": {**MODEL}},
}
FULL = {
    "id": "abc", "count": 3, "kind": "b", "version": 1, "parts": [1, 2], "by_name": {"x": 1},
    "inner": {"a": "s"}, "model": {"name": "m"}, "either": {"name": "m"},
}  # fmt: skip


def at(*path: str, **values: Any) -> Change:
    """Set keywords of the schema at a path of properties; None removes one."""

    def change(new: dict[str, Any]) -> None:
        for name in path:
            new = new.get("properties", new).get(name) or new[name]
        for name, value in values.items():
            if value is None:
                del new[name]
            else:
                new[name] = value

    return change


MATRIX: list[tuple[str, Change, dict[str, Any] | None, dict[str, Any] | None]] = [
    # name, change, a record that only the old schema accepts, a record that only the new one accepts
    ("nothing", lambda new: None, None, None),
    ("an optional field", lambda new: new["properties"].update(extra={"type": "string"}), None, None),
    ("a description", at("count", description="how many"), None, None),
    ("a required field", at(required=["id", "kind", "count"]), {"id": "a", "kind": "a"}, None),
    ("a field no longer required", at(required=["id"]), None, {"id": "a", "count": 1}),
    ("a wider type", at("count", type="number"), None, {**FULL, "count": 1.5}),
    ("null allowed", at("count", type=["integer", "null"]), None, {**FULL, "count": None}),
    ("another type", at("version", const="1"), FULL, {**FULL, "version": "1"}),
    ("a longer id", at("id", maxLength=9), None, {**FULL, "id": "abcdefghi"}),
    ("a shorter id", at("id", maxLength=2), FULL, None),
    ("a higher minimum", at("count", minimum=5), FULL, None),
    ("no minimum", at("count", minimum=None), None, {**FULL, "count": -1}),
    ("one more kind", at("kind", enum=["a", "b", "c"]), None, {**FULL, "kind": "c"}),
    ("one kind less", at("kind", enum=["b"]), {"id": "a", "kind": "a"}, None),
    ("another pattern", at("id", pattern="^[b-z0]*$"), FULL, {**FULL, "id": "0"}),
    ("no pattern", at("id", pattern=None), None, {**FULL, "id": "A"}),
    ("other items", at("parts", items={"type": "string"}), FULL, {**FULL, "parts": ["a"]}),
    ("more items", at("parts", maxItems=4), None, {**FULL, "parts": [1, 2, 3, 4]}),
    ("closed", at(additionalProperties=False), {**FULL, "more": 1}, None),
    (
        "other values by name", at("by_name", additionalProperties={"type": "string"}),
        FULL, {**FULL, "by_name": {"x": "1"}},
    ),
    ("other names", at("by_name", propertyNames={"enum": ["x", "y"]}), None, {**FULL, "by_name": {"y": 1}}),
    ("a field within a field", at("inner", "a", type="integer"), FULL, {**FULL, "inner": {"a": 1}}),
    ("a definition", at("$defs", "model", required=["name", "uri"]), FULL, None),
    ("no condition", at(allOf=None), None, {"id": "a", "kind": "b"}),
    ("not null", at("inner", type="object"), {**FULL, "inner": None}, None),
]  # fmt: skip


def reasons(wide: dict[str, Any], narrow: dict[str, Any]) -> list[str]:
    """Why `narrow` may refuse what `wide` accepts."""

    def of(schema: dict[str, Any]) -> Callable[[str], Any]:
        return lambda reference: schema["$defs"][reference.rpartition("/")[2]]

    return list(narrowings(wide, narrow, of(wide), of(narrow)))


def accepts(schema: dict[str, Any], record: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(record))


@pytest.mark.parametrize(("_name", "change", "refused", "added"), MATRIX, ids=[row[0] for row in MATRIX])
def test_the_gate_reports_a_change_exactly_if_a_record_shows_it(
    _name: str, change: Change, refused: dict[str, Any] | None, added: dict[str, Any] | None
) -> None:
    new = deepcopy(OLD)
    change(new)
    assert accepts(OLD, FULL)
    for wide, narrow, witness in ((OLD, new, refused), (new, OLD, added)):
        if witness is None:
            assert reasons(wide, narrow) == []
            assert accepts(narrow, FULL) or not accepts(wide, FULL)
        else:
            assert accepts(wide, witness)
            assert not accepts(narrow, witness)
            assert reasons(wide, narrow)


@pytest.mark.parametrize(
    "change",
    [
        at("$defs", "other", required=None),  # within an anyOf
        at("id", pattern="^[a-z]+$"),
        at(allOf=[{"if": {"required": ["count"]}, "then": {"required": ["id"]}}]),
    ],
)
def test_what_it_cannot_decide_is_reported_both_ways(change: Change) -> None:
    new = deepcopy(OLD)
    change(new)
    assert reasons(OLD, new)
    assert reasons(new, OLD)


def test_a_keyword_without_a_rule_is_refused() -> None:
    with pytest.raises(KeywordError, match="no rule for multipleOf"):
        reasons(OLD, {**OLD, "multipleOf": 2})


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    """Copies of today's contracts, as those of the source and as those of a release."""
    for name in ("current", "released/1.0"):
        (tmp_path / name).mkdir(parents=True)
        for file in contract_gate.CURRENT.glob("*.json"):
            shutil.copy(file, tmp_path / name)
    return tmp_path / "current", tmp_path / "released"


def edit(file: Path, change: Change) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_todays_contracts_are_compatible_with_themselves_and_with_what_was_released(
    directories: tuple[Path, Path],
) -> None:
    assert list(contract_gate.faults(*directories)) == []
    contract_gate.check()


@pytest.mark.parametrize("contract", Contract)
def test_each_contract_is_guarded(contract: Contract, directories: tuple[Path, Path]) -> None:
    current, _ = directories
    edit(current / f"{contract}.json", lambda new: new["required"].append("more"))
    (fault,) = contract_gate.faults(*directories)
    assert fault == f"{contract}, released as {contract} in 1.0: $.more: required now"


def test_inputs_may_grow_and_outputs_may_not(directories: tuple[Path, Path]) -> None:
    current, _ = directories
    for contract in (Contract.TRANSACTION, Contract.ALERT):
        field = "channel" if contract is Contract.TRANSACTION else "amount"
        edit(current / f"{contract}.json", at(field, type=["string", "number", "null"]))
    assert list(contract_gate.faults(*directories)) == [
        f"{Contract.ALERT}, released as {Contract.ALERT} in 1.0: $.amount: type number, before "
        "['string', 'number', 'null'], for readers of that release"
    ]


def test_a_new_version_of_an_input_still_reads_the_old_one_and_that_of_an_output_need_not(
    directories: tuple[Path, Path],
) -> None:
    current, _ = directories
    for contract in (Contract.TRANSACTION, Contract.ALERT):
        kind = contract.partition(".v")[0]
        file = (current / f"{contract}.json").rename(current / f"{kind}.v9.json")
        edit(file, lambda new: new["required"].append("more"))
    assert list(contract_gate.faults(*directories)) == [
        f"transaction.v9, released as {Contract.TRANSACTION} in 1.0: $.more: required now"
    ]


def test_a_release_keeps_the_schemas_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_gate, "RELEASED", tmp_path)
    contract_gate.release("1.0")
    kept = {file.name for file in (tmp_path / "1.0").iterdir()}
    assert kept == {file.name for file in contract_gate.CURRENT.glob("*.json")}
    with pytest.raises(contract_gate.ContractGateError, match=r"1\.0 is released already"):
        contract_gate.release("1.0")


def test_the_contracts_use_no_other_keywords() -> None:
    assert all(set(schema(contract)) <= KNOWN for contract in Contract)
