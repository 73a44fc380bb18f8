"""Whether a record that was found says what was expected, field by field, up to the last bits of numbers."""

import math
from typing import Any

SCORE_TOLERANCE = 1e-12
FEATURE_TOLERANCE = 1e-9
TOLERANCES = {
    "score": SCORE_TOLERANCE,
    "champion": SCORE_TOLERANCE,
    "features": FEATURE_TOLERANCE,
    "reasons": FEATURE_TOLERANCE,
}
"""By field; all others have to be equal."""


def as_told(
    expected: dict[str, Any], found: Any, looked_at: frozenset[str], optional: frozenset[str]
) -> dict[str, Any]:
    """What to expect of an alert that a former release may have written.

    Args:
        expected: of this release.
        found: the alert as parsed.
        looked_at: features of its model: a release that computed fewer tells these at least.
        optional: fields that former releases did not write; some of them are all of them.
    """
    if isinstance(found, dict) and optional.isdisjoint(found):
        expected = {name: value for name, value in expected.items() if name not in optional}
    known = found.get("features") if isinstance(found, dict) else None
    if not isinstance(known, dict) or not looked_at <= known.keys():
        return expected
    features = {name: value for name, value in expected["features"].items() if name in known}
    return {**expected, "features": features}


def different_fields(expected: dict[str, Any], found: Any) -> list[str]:
    """Names of the record's fields that do not agree; fields that only `found` has are not looked at."""
    if not isinstance(found, dict):
        return ["everything"]
    return [
        name
        for name, value in expected.items()
        if name not in found or not _agree(value, found[name], TOLERANCES.get(name, 0.0))
    ]


def _agree(expected: Any, found: Any, tolerance: float) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and expected.keys() == found.keys()
            and all(_agree(value, found[name], tolerance) for name, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(expected) == len(found)
            and all(_agree(one, other, tolerance) for one, other in zip(expected, found, strict=True))
        )
    if isinstance(expected, bool) or isinstance(found, bool) or not isinstance(expected, int | float):
        return type(expected) is type(found) and bool(expected == found)
    return isinstance(found, int | float) and math.isclose(
        expected, found, rel_tol=tolerance, abs_tol=tolerance
    )
