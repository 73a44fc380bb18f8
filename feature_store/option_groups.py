"""Groups of command line options that several commands of Typer have in common."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_origin

Command = Callable[..., None]


def takes(
    parameter: str, group: type, options: Mapping[str, Any] | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that replaces a parameter of a command by the options of a dataclass.

    Typer reads the options from the signature, so the returned command's signature has the options in place
    of the parameter; it creates the dataclass from their values.

    Args:
        group: the dataclass; an option has its field's default, if it has one.
        options: field -> annotation of the option for Typer; default: the annotations of the fields, without
            the fields that have no `typer.Option`.
    """
    fields = inspect.signature(group).parameters
    annotations = options or {
        name: field.annotation for name, field in fields.items() if get_origin(field.annotation) is Annotated
    }
    replacing = [
        fields[name].replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
        for name, annotation in annotations.items()
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in annotations if name in arguments}
            arguments[parameter] = group(**given)
            command(**arguments)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            kept = [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            parameters += replacing if own.name == parameter else kept
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate
