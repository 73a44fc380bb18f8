"""Typed parameters of a JSON or YAML object, with checked names and ranges; errors suggest a correction."""

import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from models.errors import GuardError
from models.score_histogram import ScoreHistogram

Path = tuple[str | int, ...]
"""Path of a value in the JSON object of the guards, as `("rules", 0, "max_ratio")`."""


@dataclass(frozen=True)
class Range:
    """Range of a numeric parameter."""

    above: float
    """Exclusive lower bound, at least 0. Positive numbers whose reciprocal is infinite are too small, too."""
    at_most: float
    """Inclusive upper bound."""
    whole: bool = False
    """Whether the parameter is an integer."""

    def read(self, value: Any, path: Path) -> float | int:
        """Return the value as a number.

        Raises:
            GuardError: the value is no number, no integer where one is required, or out of range.
        """
        kinds = (int,) if self.whole else (int, float)
        fits = (
            not isinstance(value, bool)
            and isinstance(value, kinds)
            # compared before it is converted: an integer may be larger than any float
            and self.above < value <= self.at_most
            # bets divide by limits
            and value >= sys.float_info.min
        )
        if not fits:
            kind = "an integer" if self.whole else "a number"
            raise GuardError(
                f"{text_of(path)} is {shown(value)}; give {kind} above {self.above:g} and at most "
                f"{self.at_most:g}",
                path,
            )
        return int(value) if self.whole else float(value)


def number(above: float, at_most: float, *, default: Any = MISSING, whole: bool = False) -> Any:
    """Declare a dataclass field that `build` reads; None is allowed only where it is the default."""
    return field(default=default, metadata={"kind": Range(above, at_most, whole)})


def build(target: type[Any], given: Mapping[str, Any], path: Path, besides: Iterable[str] = ()) -> Any:
    """Build a dataclass from a JSON or YAML object.

    The object's parameters are the fields that are declared by `number` or have HISTOGRAM as metadata.

    Args:
        target: the dataclass; its other fields are not parameters and keep their defaults.
        besides: further names that the object may have.

    Raises:
        GuardError: a parameter is unknown, missing, of another type, out of range, or an unusable histogram.
    """
    parameters = {item.name: item for item in fields(target) if "kind" in item.metadata}
    for name in given:
        if name not in parameters and name not in besides:
            raise GuardError(
                f"{text_of(path)} has no parameter {shown(name)}; {nearest(name, [*parameters, *besides])}",
                (*path, str(name)),
            )
    values = {}
    for name, parameter in parameters.items():
        value, value_path = given.get(name, MISSING), (*path, name)
        if value is MISSING or (value is None and parameter.default is None):
            if parameter.default is MISSING:
                raise GuardError(f"{text_of(path)} lacks {name}; give it", path)
            continue
        kind = parameter.metadata["kind"]
        values[name] = kind.read(value, value_path) if isinstance(kind, Range) else kind(value, value_path)
    return target(**values)


def nearest(name: Any, allowed: Iterable[str]) -> str:
    """Suggest the nearest of the allowed names, and list all of them."""
    names = list(allowed)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)
    return f"did you mean {near[0]}? There are {', '.join(names)}"


def text_of(path: Path) -> str:
    """Format a path for people: guards.rules[0].max_ratio."""
    return "guards" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def shown(value: Any) -> str:
    """Format a value in one short line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read_histogram(value: Any, path: Path) -> ScoreHistogram:
    advice = "give the training_scores {le, counts} of a model version, or leave the parameter out"
    try:
        histogram = ScoreHistogram.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise GuardError(f"{text_of(path)} is no score histogram: {why}; {advice}", path) from error
    if not histogram.total:
        raise GuardError(f"{text_of(path)} holds no scores; {advice}", path)
    if not math.isclose(histogram.le[-1], 1.0) or histogram.le[0] <= 0:
        raise GuardError(f"{text_of(path)} needs bounds above 0, the last of them 1; {advice}", path)
    return histogram


HISTOGRAM = {"kind": _read_histogram}
"""Metadata of a dataclass field that holds an optional score histogram, `{le, counts}`."""
