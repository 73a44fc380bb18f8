"""Guards of a rollout: which ones, with which parameters. What cannot be understood is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from models.errors import GuardError
from models.guards.parameters import Path, build, nearest, number, shown, text_of
from models.guards.rules import (
    RULES,
    AlertRate,
    Disagreement,
    Failures,
    Limits,
    Rule,
    ScoreDrift,
    ScoringTime,
)
from models.score_histogram import ScoreHistogram


@dataclass(frozen=True)
class Guards:
    """The field `guards` of a proposed rollout; the defaults are those of a rollout that names none."""

    alpha: float = number(0, 0.2, default=0.01)
    """Chance of a false breach, of each bet."""
    deadline_h: float = number(0, 8_760, default=72.0)
    """Hours after the start of the shadow at which `insufficient` becomes a rollback."""
    min_card_hours: int = number(0, 1e9, default=100, whole=True)
    """Card-hours with an alert below which nothing about alerts passes; a breach does not wait for them."""
    rules: tuple[Rule, ...] = (
        AlertRate(max_ratio=1.5, min_ratio=0.5),
        Failures(max_share=0.001),
        Disagreement(max_share=0.02),
        ScoringTime(max_ratio=3.0),
        ScoreDrift(max_psi=0.25),
    )
    """Each guard at most once."""

    @property
    def limits(self) -> Limits:
        """What each guard is told."""
        return Limits(self.alpha, self.min_card_hours)

    def to_json(self) -> dict[str, Any]:
        """The field's object with every parameter; `read` of it gives the same guards."""
        return {
            "alpha": self.alpha,
            "deadline_h": self.deadline_h,
            "min_card_hours": self.min_card_hours,
            "rules": [_rule_json(rule) for rule in self.rules],
        }


def read(given: Mapping[str, Any] | None) -> Guards:
    """Guards from JSON or YAML; None gives the defaults, because no rollout is without guards.

    Raises:
        GuardError: a name is unknown, a guard is named twice, there is none, or a number is missing or out of
            range. Names the place and what to do.
    """
    if given is None:
        return Guards()
    if not isinstance(given, Mapping):
        raise GuardError(f"guards is {shown(given)}; give an object with alpha, deadline_h and rules")
    common = build(Guards, given, (), besides=("rules",))
    if "rules" not in given:
        return Guards(common.alpha, common.deadline_h, common.min_card_hours)
    listed = given["rules"]
    if not isinstance(listed, list | tuple) or not listed:
        raise GuardError(
            f"guards.rules is {shown(listed)}; list at least one of {', '.join(RULES)}, or leave it out for "
            "the defaults",
            ("rules",),
        )
    rules = tuple(_rule(rule, ("rules", place)) for place, rule in enumerate(listed))
    names = [rule.NAME for rule in rules]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise GuardError(f"guards.rules[{place}] names {name} again; keep one of them", ("rules", place))
    return Guards(common.alpha, common.deadline_h, common.min_card_hours, rules)


def _rule(given: Any, path: Path) -> Rule:
    if not isinstance(given, Mapping) or "name" not in given:
        raise GuardError(f"{text_of(path)} is {shown(given)}; give an object with a name", path)
    name = given["name"]
    if not isinstance(name, str) or name not in RULES:
        raise GuardError(
            f"{text_of(path)} names the unknown guard {shown(name)}; {nearest(name, RULES)}", (*path, "name")
        )
    rule: Rule = build(RULES[name], given, path, besides=("name",))
    if isinstance(rule, AlertRate) and rule.min_ratio is not None and rule.min_ratio >= rule.max_ratio:
        raise GuardError(
            f"{text_of(path)}: min_ratio {rule.min_ratio:g} is not below max_ratio {rule.max_ratio:g}; "
            "no challenger could pass",
            (*path, "min_ratio"),
        )
    return rule


def _rule_json(rule: Rule) -> dict[str, Any]:
    values = {known.name: getattr(rule, known.name) for known in fields(rule)}
    return {
        "name": rule.NAME,
        **{
            name: value.to_json() if isinstance(value, ScoreHistogram) else value
            for name, value in values.items()
            if value is not None
        },
    }
