"""Groups of command line options that several commands of Typer have in common."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

Command = Callable[..., None]


def takes(
    parameter: str, group: type, options: Mapping[str, Any] | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that replaces a parameter of a command by the options of a dataclass.

    Typer reads the options from the signature, so the returned command's signature has the options in place
    of the parameter; it creates the dataclass from their values.

    Args:
        group: the dataclass; an option has its field's default, if it has one.
        options: field -> annotation of the option for Typer; default: the annotations of the fields.
    """
    fields = inspect.signature(group).parameters
    replacing = [
        fields[name].replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=options[name] if options else fields[name].annotation,
        )
        for name in options or fields
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**arguments: Any) -> None:
            arguments[parameter] = group(**{name: arguments.pop(name) for name in options or fields})
            command(**arguments)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            kept = [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            parameters += replacing if own.name == parameter else kept
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate
