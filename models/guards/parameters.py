"""Typed parameters of an object in JSON or YAML: names and ranges are checked; errors say what was meant."""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from models.errors import GuardError
from models.score_histogram import ScoreHistogram

Path = tuple[str | int, ...]
"""Of a value in the guards' object, as `("rules", 0, "max_ratio")`."""


@dataclass(frozen=True)
class Range:
    """Numbers that a parameter may have."""

    above: float
    """Exclusive."""
    at_most: float
    """Inclusive."""
    whole: bool = False
    """Whether it is an integer."""

    def read(self, value: Any, path: Path) -> float | int:
        """The number.

        Raises:
            GuardError: it is none, or out of range.
        """
        kinds = (int,) if self.whole else (int, float)
        fits = (
            not isinstance(value, bool)
            and isinstance(value, kinds)
            # compared before it is converted: an integer may be larger than any float
            and self.above < value <= self.at_most
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
    """A dataclass field that `build` reads; None is a possible value only where it is the default."""
    return field(default=default, metadata={"kind": Range(above, at_most, whole)})


def build(made: type[Any], given: Mapping[str, Any], path: Path, besides: Iterable[str] = ()) -> Any:
    """A `made`, whose fields are `number` or have HISTOGRAM as metadata, from an object.

    Args:
        made: a dataclass; fields without these are ignored.
        given: parameters by name.
        path: of the object.
        besides: further names that the object may have.

    Raises:
        GuardError: a parameter is unknown, missing, of another type, or out of range.
    """
    kinds = {known.name: known for known in fields(made) if "kind" in known.metadata}
    for name in given:
        if name not in kinds and name not in besides:
            raise GuardError(
                f"{text_of(path)} has no parameter {shown(name)}; {nearest(name, [*kinds, *besides])}",
                (*path, str(name)),
            )
    values = {}
    for name, known in kinds.items():
        value, below = given.get(name, MISSING), (*path, name)
        if value is MISSING or (value is None and known.default is None):
            if known.default is MISSING:
                raise GuardError(f"{text_of(path)} lacks {name}; give it", path)
            continue
        kind = known.metadata["kind"]
        values[name] = kind.read(value, below) if isinstance(kind, Range) else kind(value, below)
    return made(**values)


def nearest(name: Any, known: Iterable[str]) -> str:
    """What may have been meant, and what else there is."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)
    return f"did you mean {near[0]}? There are {', '.join(names)}"


def text_of(path: Path) -> str:
    """A path for a person: guards.rules[0].max_ratio."""
    return "guards" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def shown(value: Any) -> str:
    """A value in one short line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read_histogram(value: Any, path: Path) -> ScoreHistogram:
    advice = "give a model version's training_scores, {le, counts}, or leave it out"
    try:
        made = ScoreHistogram.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise GuardError(f"{text_of(path)} is no score histogram: {why}; {advice}", path) from error
    if not made.total:
        raise GuardError(f"{text_of(path)} holds no scores; {advice}", path)
    if not math.isclose(made.le[-1], 1.0) or made.le[0] <= 0:
        raise GuardError(f"{text_of(path)} does not end at 1; {advice}", path)
    return made


HISTOGRAM = {"kind": _read_histogram}
"""Metadata of a dataclass field that is an optional `{le, counts}`."""
