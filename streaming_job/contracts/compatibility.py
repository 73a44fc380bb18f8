"""Comparison of two versions of a JSON Schema: which records of one could the other refuse? Pure.

It knows the keywords that the contracts use, and refuses others. Where it cannot decide, it reports: a
changed pattern or condition counts as narrower, although it may not be.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from feature_store.errors import FraudError

Schema = Mapping[str, Any] | bool
Definitions = Callable[[str], Any]
ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "title", "description"})
LOWER, UPPER = ("minimum", "minLength", "minItems"), ("maximum", "maxLength", "maxItems")
AS_IS = ("pattern", "format", "uniqueItems", "if", "then", "else", "allOf", "anyOf", "dependentRequired")
"""Keywords of which only the same value, or none, is known to be no narrower."""
NESTED = ("items", "propertyNames")
OWN = ("type", "enum", "const", "required", "properties", "additionalProperties")
KNOWN = frozenset({*ANNOTATIONS, *LOWER, *UPPER, *AS_IS, *NESTED, *OWN, "$ref"})
WIDER = {"integer": {"integer", "number"}}
"""Type -> the types that have all its values; all others have only their own."""


_JSON = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object",
}  # fmt: skip


class KeywordError(FraudError):
    """A contract uses a keyword of JSON Schema that the comparison of versions does not know.

    Write the contract without it, or add its rule to `streaming_job/contracts/compatibility.py`.
    """


def narrowings(
    wide: Schema, narrow: Schema, wide_defs: Definitions, narrow_defs: Definitions, at: str = "$"
) -> Iterator[str]:
    """Yield why `narrow` may refuse a record that `wide` accepts; nothing if it accepts all of them.

    A field that `wide` does not name counts as one that no record has, so that optional fields can be added.

    Args:
        wide_defs: returns what a `$ref` of `wide` stands for, by its text.
        narrow_defs: the same of `narrow`.
        at: path of the schemas, for the texts.

    Raises:
        KeywordError: one of the schemas has a keyword that is not in KNOWN.
    """
    wide, narrow = _resolved(wide, wide_defs, at), _resolved(narrow, narrow_defs, at)
    if wide is False or narrow is True:
        return
    if narrow is False:
        yield f"{at}: forbidden now"
        return
    wide = {} if wide is True else wide
    yield from _of_values(wide, narrow, at)
    for name in AS_IS:
        if name in narrow and _inlined(narrow[name], narrow_defs) != _inlined(wide.get(name), wide_defs):
            yield f"{at}: {name} is new or changed"
    for name in sorted({*narrow.get("required", ())} - {*wide.get("required", ())}):
        yield f"{at}.{name}: required now"
    for name in NESTED:
        if name in narrow:
            yield from narrowings(wide.get(name, True), narrow[name], wide_defs, narrow_defs, f"{at}.{name}")
    mine, theirs = wide.get("properties", {}), narrow.get("properties", {})
    for name in sorted({*mine} & {*theirs}):
        yield from narrowings(mine[name], theirs[name], wide_defs, narrow_defs, f"{at}.{name}")
    others = narrow.get("additionalProperties", True)
    for name in sorted({*mine} - {*theirs}):
        yield from narrowings(mine[name], others, wide_defs, narrow_defs, f"{at}.{name}")
    open_to = wide.get("additionalProperties", True)
    yield from narrowings(open_to, others, wide_defs, narrow_defs, f"{at}.*")


def _resolved(schema: Schema, defs: Definitions, at: str) -> Schema:
    while not isinstance(schema, bool) and "$ref" in schema:
        schema = {**defs(schema["$ref"]), **{name: schema[name] for name in schema if name != "$ref"}}
    if not isinstance(schema, bool) and (unknown := {*schema} - KNOWN):
        raise KeywordError(f"{at}: no rule for {', '.join(sorted(unknown))}; see docs/errors.md")
    return schema


def _inlined(part: Any, defs: Definitions) -> Any:
    """Return a part of a schema with what its references stand for."""
    if isinstance(part, list):
        return [_inlined(each, defs) for each in part]
    if not isinstance(part, dict):
        return part
    inlined = {name: _inlined(value, defs) for name, value in part.items() if name not in ANNOTATIONS}
    reference = inlined.pop("$ref", None)
    return inlined if reference is None else {**_inlined(defs(reference), defs), **inlined}


def _of_values(wide: Mapping[str, Any], narrow: Mapping[str, Any], at: str) -> Iterator[str]:
    if "type" in narrow:
        accepted = _types(narrow)
        if not _types(wide) or not all(WIDER.get(kind, {kind}) & accepted for kind in _types(wide)):
            yield f"{at}: type {narrow['type']}, before {wide.get('type', 'any')}"
    if (values := _values(narrow)) is not None:
        before = _values(wide)
        if before is None or not all(value in values for value in before):
            yield f"{at}: values {values}, before {'any' if before is None else before}"
    for names, sign in ((LOWER, 1), (UPPER, -1)):
        for name in names:
            if name in narrow and (name not in wide or sign * narrow[name] > sign * wide[name]):
                yield f"{at}: {name} {narrow[name]}, before {wide.get(name, 'none')}"


def _types(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema accepts, also if it lists values instead; empty: all."""
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else {*schema["type"]}
    return {_type(value) for value in _values(schema) or ()}


def _type(value: object) -> str:
    return _JSON.get(type(value), "array")


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")
