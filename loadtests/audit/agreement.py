"""Field-by-field comparison of a record with the expected one, with tolerances for floating-point numbers."""

import math
from typing import Any

from feature_store.release import RELEASE

DECIMALS = 9
"""Decimal places of scores and of contributions to them."""
SCORE_TOLERANCE = 1.5 / 10**DECIMALS
"""Tolerance of scores and contributions: more than one step of rounding, because half a step may lie between
what two processors compute, and less than two."""
FEATURE_TOLERANCE = 1e-9
TOLERANCES = {
    "score": SCORE_TOLERANCE,
    "champion": SCORE_TOLERANCE,
    "features": FEATURE_TOLERANCE,
    "reasons": SCORE_TOLERANCE,
}
"""Absolute and relative tolerance by field; all other fields have to be equal."""


def with_features_of_its_release(
    expected: dict[str, Any], alert: Any, looked_at: frozenset[str]
) -> dict[str, Any]:
    """Drop those expected features that another release, which decided before an upgrade, does not compute.

    Args:
        expected: the alert that this release writes.
        alert: the parsed alert on the topic; if it names this release, all features are expected.
        looked_at: features of the alert's model; a release with fewer features computes these as well.
    """
    if not isinstance(alert, dict) or alert.get("release") == RELEASE:
        return expected
    written = alert.get("features")
    if not isinstance(written, dict) or not looked_at <= written.keys():
        return expected
    features = {name: value for name, value in expected["features"].items() if name in written}
    return {**expected, "features": features}


def different_fields(expected: dict[str, Any], actual: Any) -> list[str]:
    """Return the names of the fields that differ; top-level fields of the actual record alone are ignored."""
    if not isinstance(actual, dict):
        return ["everything"]
    return [
        name
        for name, value in expected.items()
        if name not in actual or not _agree(value, actual[name], TOLERANCES.get(name, 0.0))
    ]


def unrounded_fields(record: Any) -> list[str]:
    """Return the fields of an alert or shadow alert whose scores or contributions have too many decimals.

    The job and the oracle share the models, so their comparison would not show that scores are not rounded.
    """
    if not isinstance(record, dict):
        return []
    champion, reasons = record.get("champion"), record.get("reasons")
    numbers = {
        "score": [record.get("score")],
        "champion": [champion.get("score")] if isinstance(champion, dict) else [],
        "reasons": [reason.get("contribution") for reason in reasons or () if isinstance(reason, dict)],
    }
    return [
        name
        for name, values in numbers.items()
        if any(isinstance(value, float) and round(value, DECIMALS) != value for value in values)
    ]


def _agree(expected: Any, actual: Any, tolerance: float) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and expected.keys() == actual.keys()
            and all(_agree(value, actual[name], tolerance) for name, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(expected) == len(actual)
            and all(_agree(item, other, tolerance) for item, other in zip(expected, actual, strict=True))
        )
    if isinstance(expected, bool) or isinstance(actual, bool) or not isinstance(expected, int | float):
        return type(expected) is type(actual) and bool(expected == actual)
    return isinstance(actual, int | float) and math.isclose(
        expected, actual, rel_tol=tolerance, abs_tol=tolerance
    )
