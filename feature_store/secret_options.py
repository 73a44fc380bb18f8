"""Options of commands whose values may hold a password: it is refused on the command line.

All users of a machine can read the command lines of its processes, but only a process's own user its
environment.
"""

import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import typer

from feature_store.errors import FraudError

_SECRET_WORDS = ("password", "secret", "key.pem", "oauthbearer.config", "jaas", "token")
"""Parts of the names of Kafka client settings whose values are secret."""


class SecretOptionError(FraudError):
    """A password was given on the command line, which other users of the machine can read."""


def from_environment(
    variable: str, secrets: Callable[[str], list[str]]
) -> Callable[[typer.Context, typer.CallbackParam, str | None], str | None]:
    """Create an option's callback that takes secrets only from its environment variable.

    Args:
        secrets: returns the names of the secrets in a value.

    Returns:
        A callback that raises SecretOptionError for a secret on the command line.
    """

    def check(context: typer.Context, option: typer.CallbackParam, value: str | None) -> str | None:
        source = context.get_parameter_source(option.name or "")
        is_argument = source is not None and source.name == "COMMANDLINE"
        if value and is_argument and (names := secrets(value)):
            raise SecretOptionError(
                f"{option.opts[0]} with {', '.join(names)}: other users can read command lines; set the "
                f"environment variable {variable} instead"
            )
        return value

    return check


def in_client_settings(text: str) -> list[str]:
    """Return the names of Kafka client settings, a JSON object, whose values are secret."""
    try:
        names = list(json.loads(text))
    except (ValueError, TypeError):
        return []  # refused later, with another message
    return [str(name) for name in names if any(word in str(name) for word in _SECRET_WORDS)]


def in_address(text: str) -> list[str]:
    """Return ["a password"] if an address, a URL or a libpq connection string, has one, else nothing."""
    try:
        url = urlsplit(text)
        in_query = "password" in parse_qs(url.query)
        has_one = url.password is not None or in_query or (not url.scheme and "password=" in text)
    except ValueError:
        has_one = "password=" in text
    return ["a password"] if has_one else []
