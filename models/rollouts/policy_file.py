"""Policy files: YAML that people review, identified by the digest of the policy in it (`Policy.digest`).

    policy:
      threshold: 0.87
      max_count_5m: 6
      escalate_after: 3
    guards:
      alpha: 0.01

Ambiguous content is refused with its line number: unknown or repeated names, aliases, text instead of a
number, a bare word that YAML reads as a boolean, a number that it reads to another base, as 010 (8) and 1:30
(90). Of these, only repeated names, aliases and such numbers are refused here within `guards`;
`models.guards.policy.read` checks the rest.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from models.errors import ModelError
from models.policy import PARAMETERS, Policy

POLICY, GUARDS = "policy", "guards"
NAMES = tuple(PARAMETERS)
REQUIRED = tuple(field.name for field in fields(Policy) if field.default is MISSING)
MAY_BE_NULL = frozenset(field.name for field in fields(Policy) if field.default is None)
_AMBIGUOUS = re.compile(r"[-+]?0\w|.*:")
LARGEST = 64 * 1024
"""Largest file, bytes: no larger policy can be reviewed."""


class PolicyFileError(ModelError):
    """A policy file cannot be read, or has invalid content; the message names file and line."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.line = line


def load(path: Path) -> tuple[Policy, Mapping[str, Any] | None, str]:
    """Read a policy file.

    Args:
        path: YAML file with `policy` and, optionally, `guards`.

    Returns:
        The policy; the guards as given, None without any; the policy's digest (`Policy.digest`).

    Raises:
        PolicyFileError: the file cannot be read, is no YAML, or has invalid content; the text has the line.
    """
    import yaml

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise PolicyFileError(path, 1, f"more than {LARGEST} bytes; keep only the policy and its guards")
        for event in yaml.parse(content.decode(), Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):  # through one, a value could contain itself
                reason = f"*{event.anchor} repeats other lines; write the values out"
                raise PolicyFileError(path, _line(event), reason)
        root = yaml.compose(content.decode(), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyFileError(path, 1, f"cannot be read: {error}; give a UTF-8 text file") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise PolicyFileError(path, line, f"no YAML: {error.problem}; correct the line") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise PolicyFileError(path, 1, f"no YAML: {error}; correct it") from error
    parts = _mapping(path, root, (POLICY, GUARDS))
    if POLICY not in parts:
        raise PolicyFileError(path, 1, f"there is no `{POLICY}:`; begin with it")
    policy = _policy(path, parts[POLICY])
    guards = _plain(path, parts[GUARDS]) if GUARDS in parts else None
    if guards is not None and not isinstance(guards, dict):
        raise PolicyFileError(path, _line(parts[GUARDS]), f"`{GUARDS}` has no names; give name: value")
    return policy, guards, policy.digest()


def _policy(path: Path, node: Any) -> Policy:
    given = _mapping(path, node, NAMES)
    for name in REQUIRED:
        if name not in given:
            raise PolicyFileError(path, _line(node), f"`{name}` is missing; every policy has it")
    values: dict[str, Any] = {name: _value(path, name, value) for name, value in given.items()}
    try:
        return Policy(**values)
    except ModelError as error:
        named = next((name for name in sorted(given, key=len, reverse=True) if name in str(error)), POLICY)
        raise PolicyFileError(path, _line(given.get(named, node)), str(error)) from error


def _value(path: Path, name: str, node: Any) -> object:
    value = _plain(path, node)
    if name == "threshold":
        if type(value) not in (int, float):
            raise PolicyFileError(
                path, _line(node), f"threshold {value!r} is no number; give one from 0 to 1"
            )
        return float(value)
    if PARAMETERS[name].is_whole:
        if type(value) is not int and not (value is None and name in MAY_BE_NULL):
            raise PolicyFileError(path, _line(node), f"{name} {value!r} is no whole number; give one")
        return value
    if type(value) is not str:
        raise PolicyFileError(
            path, _line(node), f"{name} {value!r} is no word; give one, in quotes if need be"
        )
    return value


def _mapping(path: Path, node: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Return the nodes of a mapping by name; unknown and repeated names are refused."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        raise PolicyFileError(path, _line(node), f"names are expected here: {', '.join(allowed)}")
    nodes: dict[str, Any] = {}
    for key, value in node.value:
        name = str(key.value)
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1, 0.0)[0]
            raise PolicyFileError(path, _line(key), f"`{name}` is unknown; did you mean `{near}`?")
        if name in nodes:
            raise PolicyFileError(path, _line(key), f"`{name}` is there twice; remove one")
        nodes[name] = value
    return nodes


def _plain(path: Path, node: Any) -> Any:
    """Convert a node into built-in types; repeated names and scalars that YAML cannot read are refused."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [_plain(path, item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key, value in node.value:
            if str(key.value) in values:
                raise PolicyFileError(path, _line(key), f"`{key.value}` is there twice; remove one")
            values[str(key.value)] = _plain(path, value)
        return values
    try:
        value = yaml.SafeLoader("").construct_object(node)
        if isinstance(value, int | float) and _AMBIGUOUS.match(str(node.value)):
            raise ValueError("YAML reads it as a number to another base")
        return value
    except (yaml.YAMLError, ValueError) as error:
        reason = f"{node.value!r} is no plain value; correct the line, with numbers in decimal digits"
        raise PolicyFileError(path, _line(node), reason) from error


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1 if node is not None else 1
