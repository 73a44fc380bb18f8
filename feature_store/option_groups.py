"""Groups of command line options that several commands of Typer have in common."""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

import typer

Command = Callable[..., None]


def takes(parameter: str, group: type, but: Collection[str] = ()) -> Callable[[Command], Command]:
    """Return a decorator that replaces a parameter of a command by the options of a dataclass.

    Typer reads the options from the signature, so the returned command's signature has the options in place
    of the parameter; it creates the dataclass from their values.

    Args:
        group: the dataclass; an option has its field's default, if it has one.
        but: fields that are no options, which have defaults.
    """
    replacing = [
        field.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for field in inspect.signature(group).parameters.values()
        if field.name not in but
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**arguments: Any) -> None:
            given = {field.name: arguments.pop(field.name) for field in replacing if field.name in arguments}
            arguments[parameter] = group(**given)
            command(**arguments)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            kept = [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            parameters += replacing if own.name == parameter else kept
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


def refuse_ignored(context: typer.Context, names: Collection[str], reason: str) -> None:
    """Refuse options on the command line that the command would ignore; variables may be set for others.

    Args:
        names: parameters of the command.
        reason: continues "OPTION is", for people.

    Raises:
        typer.BadParameter: one of them is on the command line.
    """
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in names and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"{option.opts[0]} is {reason}")
