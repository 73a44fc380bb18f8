"""`fraud tokens`: the tokens of the sidecar's callers."""

import getpass
import os
import re
import time
from pathlib import Path
from typing import Annotated

import typer

from feature_store.printable import printable
from feature_store.utc import moment_of
from service.security import tokens
from service.security.roles import Role
from service.security.tokens import TokensError

UNITS_S = {"m": 60, "h": 3600, "d": 86400}
OWN_FILES_ONLY = 0o077

app = typer.Typer(no_args_is_help=True, help="Tokens of the sidecar's callers; the file holds hashes only.")

TheFile = Annotated[Path, typer.Option("--file", envvar="FRAUD_TOKENS_FILE", help="The tokens file")]
Name = Annotated[str, typer.Argument(help="Name of the token's holder, for example alice or prometheus")]


@app.command("add")
def add(
    name: Name,
    file: TheFile,
    role: Annotated[str, typer.Option(help="viewer, operator or admin")],
    expires: Annotated[str | None, typer.Option(help="Lifetime: 90d, 12h, 30m; default: unlimited")] = None,
) -> None:
    """Create a token and print it once.

    Example: fraud tokens add ada --role operator --expires 90d --file tokens.json
    """
    os.umask(OWN_FILES_ONLY)
    now_ms = _now_ms()
    expires_at = None if expires is None else now_ms + _duration_ms(expires)
    secret = tokens.add(file, name, _role(role), getpass.getuser(), now_ms, expires_at)
    typer.echo(secret)
    typer.echo("the line above is the token; it is kept nowhere, and not shown again", err=True)


@app.command("list")
def list_tokens(file: TheFile) -> None:
    """List the tokens with role, state, creation and expiry.

    Example: fraud tokens list --file tokens.json
    """
    now_ms = _now_ms()
    for token in tokens.read(file):
        until = "never expires" if token.expires_at is None else f"expires {_day(token.expires_at)}"
        revoked = "" if token.revoked_at is None else f" {_day(token.revoked_at)} by {token.revoked_by}"
        line = (
            f"{token.name:<24} {token.role.word:<9} {token.state(now_ms)}{revoked}, made "
            f"{_day(token.created_at)} by {token.created_by}, {until}"
        )
        typer.echo(printable(line))


@app.command("revoke")
def revoke(name: Name, file: TheFile) -> None:
    """Revoke a token, from the next request on.

    Example: fraud tokens revoke ada --file tokens.json
    """
    os.umask(OWN_FILES_ONLY)
    tokens.revoke(file, name, getpass.getuser(), _now_ms())
    typer.echo(f"the token of {name} is revoked")


def _role(word: str) -> Role:
    try:
        return Role.of(word)
    except ValueError:
        raise TokensError(f"{word!r} is no role; take viewer, operator or admin") from None


def _duration_ms(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,4})([mhd])", text)
    if match is None:
        raise TokensError(f"{text!r} is no duration; write for example 90d, 12h or 30m")
    return int(match[1]) * UNITS_S[match[2]] * 1000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _day(ms: int) -> str:
    return moment_of(ms).strftime("%Y-%m-%d %H:%M UTC")
