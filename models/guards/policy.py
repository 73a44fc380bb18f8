"""The guards of a rollout and their parameters, read from JSON or YAML."""

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
    Precision,
    Rule,
    ScoreDrift,
    ScoringTime,
)
from models.score_histogram import ScoreHistogram


@dataclass(frozen=True)
class Guards:
    """The field `guards` of a proposed rollout; the defaults apply to a rollout without this field."""

    alpha: float = number(0, 0.2, default=0.01)
    """Greatest probability, per bet, of a false proof: that a limit is broken, or that it is kept."""
    deadline_h: float = number(0, 8_760, default=72.0)
    """Hours after the start of the shadow at which `insufficient` becomes a rollback."""
    min_card_hours: int = number(0, 1e9, default=100, whole=True)
    """Minimum of card-hours in which either model alerted, for a pass of `alert_rate` or `disagreement`; a
    breach needs no minimum."""
    rules: tuple[Rule, ...] = (
        AlertRate(max_ratio=1.5, min_ratio=0.5),
        Failures(max_share=0.001),
        Disagreement(max_share=0.02),
        ScoringTime(max_ratio=3.0),
        ScoreDrift(max_psi=0.25),
    )
    """Guards, each at most once."""

    @property
    def limits(self) -> Limits:
        """Parameters that are set once for all guards; a guard uses those that its test needs."""
        return Limits(self.alpha, self.min_card_hours)

    @property
    def need_labels(self) -> bool:
        """Whether a guard judges counts by label."""
        return any(isinstance(rule, Precision) for rule in self.rules)

    def to_json(self) -> dict[str, Any]:
        """Return the guards as a JSON object, parameters that are None left out; `read` reverses this."""
        return {
            "alpha": self.alpha,
            "deadline_h": self.deadline_h,
            "min_card_hours": self.min_card_hours,
            "rules": [_rule_json(rule) for rule in self.rules],
        }


def read(given: Mapping[str, Any] | None) -> Guards:
    """Read guards from JSON or YAML; None returns the defaults, because every rollout has guards.

    Raises:
        GuardError: a name is unknown, a guard is named twice, `rules` is empty, or a value is missing,
            invalid or out of range. The message says which parameter is wrong and what to give instead.
    """
    if given is None:
        return Guards()
    if not isinstance(given, Mapping):
        raise GuardError(
            f"guards is {shown(given)}; give an object of alpha, deadline_h, min_card_hours and rules"
        )
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
    rules = tuple(_rule(rule, ("rules", index)) for index, rule in enumerate(listed))
    names = [rule.NAME for rule in rules]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise GuardError(f"guards.rules[{index}] names {name} again; keep one of them", ("rules", index))
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
    values = {parameter.name: getattr(rule, parameter.name) for parameter in fields(rule)}
    return {
        "name": rule.NAME,
        **{
            name: value.to_json() if isinstance(value, ScoreHistogram) else value
            for name, value in values.items()
            if value is not None
        },
    }
