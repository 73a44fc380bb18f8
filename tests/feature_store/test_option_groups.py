"""Commands that share a group of options."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from feature_store.option_groups import takes

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Limits:
    most: Annotated[int, typer.Option(max=9)]
    least: int = 3


app = typer.Typer()


@app.command()
@takes("limits", Limits)
def show(name: str, limits: Limits, loud: bool = False) -> None:
    typer.echo(f"{name} {limits.least}..{limits.most} {loud}")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["a", "--most", "5"], 0, "a 3..5 False"),
        (["a", "--most", "5", "--least", "1", "--loud"], 0, "a 1..5 True"),
        (["a"], 2, "--most"),
        (["a", "--most", "10"], 2, "--most"),
    ],
)
def test_a_command_has_its_own_options_and_those_of_the_group(
    arguments: list[str], code: int, text: str
) -> None:
    outcome = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "TERM": "dumb"})
    assert (outcome.exit_code, text in outcome.output) == (code, True), outcome.output
