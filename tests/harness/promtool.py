"""Rules run by promtool: an alert over synthetic series, and the times at which it must fire or not."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus import RULES
from deploy.prometheus.absence import rules
from harness.tools import find

HERE = {"job": "card-fraud", "instance": "sidecar:8000"}
Rule = dict[str, Any]


@dataclass(frozen=True)
class Slope:
    """A counter that grows by an amount in each step."""

    per_step: float


@dataclass(frozen=True)
class Clock:
    """The time of the sample plus a number of seconds."""

    ahead_s: float = 0.0


@dataclass(frozen=True)
class Pulse:
    """`value` at the first step of a phase and at each `every`-th step after it, `between` at the others."""

    value: float
    between: float
    every: int


class Gone:
    """No sample."""


Value = float | Slope | Clock | Pulse | Gone
Series = Mapping[str, Value]


@dataclass(frozen=True)
class Case:
    """An alert, tried on series that are good, then bad, then good again."""

    alert: str
    good: Series
    """Good values by series, named as in PromQL; `job` and `instance` are HERE's if left out."""
    bad: Series
    """Values of the series that differ from `good` in the bad phase."""
    fires_after: int
    """Steps from the first bad sample to the first evaluation in which the alert fires."""
    quiet_after: int
    """Steps from the first good sample after the bad ones to the first evaluation without the alert."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the firing alert besides HERE's and the rule's; an empty value drops one of these."""
    almost: Sequence[Series] = ()
    """Alternatives to `bad` on which the alert must not fire, each for `during` + `after` steps."""
    select: Mapping[str, str] = field(default_factory=dict)
    """Labels that tell the rule from others of the same name."""
    quiet_without: bool = True
    """Whether the alert must keep quiet when all its series are gone."""
    before: int = 12
    during: int = 20
    after: int = 20
    step: str = "1m"

    @property
    def id(self) -> str:
        """Name of the alert, with the labels that distinguish its rules."""
        return "-".join([self.alert, *self.select.values()])


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of every file."""
    return tuple(rule for file in sorted(RULES.glob("*.yml")) for rule in rules(file))


RECORDED = {rule["record"]: rule for rule in all_rules() if "record" in rule}


def rule_of(case: Case) -> Rule:
    """The rule of a case."""
    (result,) = [
        rule
        for rule in all_rules()
        if rule.get("alert") == case.alert and case.select.items() <= rule["labels"].items()
    ]
    return result


def needed(rule: Rule, recorded: Mapping[str, Rule] = RECORDED) -> list[Rule]:
    """The recording rules that a rule uses, each after those that it uses itself."""
    names = [name for name in re.findall(r"job:[\w:]+", rule["expr"]) if name in recorded]
    rules: list[Rule] = []
    for name in dict.fromkeys(names):
        rules += [needed_rule for needed_rule in needed(recorded[name], recorded) if needed_rule not in rules]
        rules += [recorded[name]] if recorded[name] not in rules else []
    return rules


def seconds(text: str) -> int:
    """Seconds of a duration such as 30s, 1m, 5m."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def written(name: str) -> str:
    """A series with HERE's job and instance unless it has its own; labels with an empty value are dropped."""
    metric, _, labels = name.rstrip("}").partition("{")
    given = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    every = {**HERE, **given}
    return metric + "{" + ",".join(f'{key}="{value}"' for key, value in every.items() if value) + "}"


def samples(phases: Sequence[tuple[int, Value]], step_s: int) -> str:
    """promtool's notation of one series."""
    result: list[str] = []
    total = 0.0
    for steps, value in phases:
        for number in range(steps):
            if isinstance(value, Gone):
                result.append("_")
            elif isinstance(value, Clock):
                result.append(f"{len(result) * step_s + value.ahead_s:g}")
            elif isinstance(value, Pulse):
                result.append(f"{value.between if number % value.every else value.value:.12g}")
            elif isinstance(value, Slope):
                total += value.per_step
                result.append(f"{total:.12g}")
            else:
                result.append(f"{value:.12g}")
    return " ".join(result)


def series(case: Case, differs: Sequence[tuple[int, Series]]) -> list[dict[str, str]]:
    """Input series for promtool; a phase of `differs` is its number of steps and its changes of `good`."""
    names = dict.fromkeys([*case.good, *(name for _, other in differs for name in other)])
    return [
        {
            "series": written(name),
            "values": samples(
                [(steps, other.get(name, case.good.get(name, Gone()))) for steps, other in differs],
                seconds(case.step),
            ),
        }
        for name in names
    ]


def document(case: Case, rule: Rule) -> dict[str, Any]:
    """promtool's test file of a case.

    The alert fires on `bad` and recovers; it keeps quiet on `almost` and, if `quiet_without`, when all its
    series are gone.
    """
    step = seconds(case.step)
    select = {"alertname": case.alert, "alertstate": "firing", **case.select}
    query = "ALERTS{" + ",".join(f'{key}="{value}"' for key, value in select.items()) + "}"
    labels = {**HERE, **rule["labels"], **case.labels, "alertname": case.alert, "alertstate": "firing"}
    firing = "ALERTS{" + ",".join(f'{key}="{value}"' for key, value in labels.items() if value) + "}"

    def at(number: int, fires: bool) -> dict[str, Any]:
        expected = [{"labels": firing, "value": 1}] if fires else []
        return {"expr": query, "eval_time": f"{number * step}s", "exp_samples": expected}

    begun, over = case.before, case.before + case.during
    end = over + case.after
    story = [(case.before, {}), (case.during, case.bad), (case.after, {})]
    moments = [
        at(begun - 1, False),
        *([at(begun + case.fires_after - 1, False)] if case.fires_after else []),
        at(begun + case.fires_after, True),
        at(over - 1, True),
        *([at(over + case.quiet_after - 1, True)] if case.quiet_after else []),
        at(over + case.quiet_after, False),
        at(end - 1, False),
    ]
    quiet = [at(number, False) for number in range(begun, end, 3)] + [at(end - 1, False)]
    gone: Series = {name: Gone() for name in {**case.good, **case.bad}}
    quiet_ones = [*case.almost, gone] if case.quiet_without else case.almost
    others = [[(case.before, {}), (case.during + case.after, other)] for other in quiet_ones]
    tests = [{"interval": case.step, "input_series": series(case, story), "promql_expr_test": moments}]
    tests += [
        {"interval": case.step, "input_series": series(case, other), "promql_expr_test": quiet}
        for other in others
    ]
    return {"rule_files": ["rules.yml"], "evaluation_interval": case.step, "tests": tests}


def run(case: Case, home: Path, rule: Rule | None = None, recorded: Mapping[str, Rule] = RECORDED) -> str:
    """Failures that promtool reports for a case; empty if there are none.

    Args:
        home: an empty directory.
        rule: is run instead of the stored rule, whose labels are expected in any case.
        recorded: the recording rules to use instead of the stored ones.
    """
    rule = rule or rule_of(case)
    group = {"name": "under-test", "rules": [*needed(rule, recorded), rule]}
    (home / "rules.yml").write_text(yaml.safe_dump({"groups": [group]}))
    (home / "test.yml").write_text(yaml.safe_dump(document(case, rule_of(case)), width=10_000_000))
    ended = subprocess.run(
        [find("promtool"), "test", "rules", "test.yml"], cwd=home, capture_output=True, text=True, timeout=120
    )
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr
