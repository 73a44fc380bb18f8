"""Mutants of rules, each with one fault: cases that pass with a mutant do not test what it changes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.promtool import Rule

_TOKENS = re.compile(
    r"""(?P<grouping>\b(?:by|without)\s*\([^)]*\))
      | (?P<matching>\b(?:on|ignoring|group_left|group_right)\s*\([^)]*\))
      | (?P<range>\[[^\]]*\])
      | (?P<offset>\boffset\s+\w+)
      | (?P<matchers>\{[^}]*\})
      | (?P<metric>\b(?:job:)?fraud_\w+(?::\w+)?|\bup\b)
      | (?P<comparison>==|!=|>=|<=|>|<)
      | (?P<set>\b(?:and|or|unless)\b)
      | (?P<number>(?<![\w.])\d+(?:\.\d+)?(?:e\d+)?(?![\w.]))""",
    re.VERBOSE,
)
_TURNED = {"==": "!=", "!=": "==", ">": "<", "<": ">", ">=": "<", "<=": ">"}
_SWAPPED = {"and": "unless", "unless": "and", "or": "and"}


@dataclass(frozen=True)
class Mutant:
    """A changed rule, and a description of the change."""

    what: str
    rule: Rule


def mutants(rule: Rule) -> Iterator[Mutant]:
    """Every mutant of a rule, in a fixed order.

    A metric renamed; a label or its value changed; an alternative of a pattern left out; a label left out of
    `by` or `without`; a comparison turned round; a set operator swapped; a number ten times as large (10 in
    place of 0); `for` left out or ten times as long.
    """
    name, expression = rule.get("alert") or rule["record"], str(rule["expr"])
    for match in _TOKENS.finditer(expression):
        for new in _changes(str(match.lastgroup), match.group()):
            changed = expression[: match.start()] + new + expression[match.end() :]
            what = f"{name}: {match.group()} -> {new} at {match.start()}"
            yield Mutant(what, {**rule, "expr": changed})
    if "for" in rule:
        wait = rule["for"]
        yield Mutant(f"{name}: for {wait} left out", {key: rule[key] for key in rule if key != "for"})
        longer = f"{int(wait[:-1]) * 10}{wait[-1]}"
        yield Mutant(f"{name}: for {longer}", {**rule, "for": longer})


def _changes(kind: str, text: str) -> Iterator[str]:
    match kind:
        case "metric":
            yield f"{text}_gone"
        case "comparison":
            yield _TURNED[text]
        case "set":
            yield _SWAPPED[text]
        case "number":
            yield f"{float(text) * 10 or 10:g}"
        case "grouping":
            head, _, labels = text.rstrip(")").partition("(")
            every = [label.strip() for label in labels.split(",")]
            for label in every:
                yield f"{head}({', '.join(other for other in every if other != label)})"
        case "matchers":
            yield from _matchers(text)


def _matchers(text: str) -> Iterator[str]:
    for match in re.finditer(r'(\w+)(=~|!=|!~|=)"([^"]*)"', text):
        label, operator, value = match.groups()
        changed = [f'{label}_x{operator}"{value}"', f'{label}{operator}"x{value}x"']
        alternatives = value.split("|")
        if "~" in operator and len(alternatives) > 1:
            for left_out in alternatives:
                others = "|".join(alternative for alternative in alternatives if alternative != left_out)
                changed.append(f'{label}{operator}"{others}"')
        for new in changed:
            yield text[: match.start()] + new + text[match.end() :]
