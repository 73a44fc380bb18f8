"""All commands of `fraud`: how many there are, and the example in each one's help."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy import cli

pytestmark = pytest.mark.unit
MOST = 48
"""Commands that a person can still survey. A new one has to be an option of another, or replace one."""
EXAMPLE = re.compile(r"^ *Example: (fraud .*)$", re.MULTILINE)


def leaves(command: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words, command) of a command without subcommands, or of those below it."""
    if not hasattr(command, "commands"):
        yield names, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*names, name))


ALL = [leaf for name in cli.COMMANDS for leaf in leaves(cli._load(name), ("fraud", name))]
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINE = re.compile(r"^ {4,}(fraud .*)$", re.MULTILINE)
IN_TEXT = re.compile(r"`(fraud [^`]+)`")


def test_there_are_few_commands() -> None:
    assert len(ALL) <= MOST, [" ".join(words) for words, _ in ALL]


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_each_commands_help_has_an_example_that_it_understands(
    words: tuple[str, ...], command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = EXAMPLE.findall(command.help or "")
    assert len(examples) == 1, "its help has no line `Example: fraud ...`"
    given = shlex.split(examples[0])
    assert tuple(given[: len(words)]) == words
    for name in ("BOOTSTRAP_SERVERS", "MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "none")
    assert command.make_context(words[-1], given[len(words) :]).params


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """(command, arguments) of a command line; `None` for the name of a group or an option of `fraud`."""
    for names, command in ALL:
        if tuple(words[: len(names)]) == names:
            return command, words[len(names) :]
    is_group = any(names[: len(words)] == tuple(words) for names, _ in ALL)
    assert is_group or words[1].startswith("--"), "there is no such command"
    return None, []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_the_pages_exists_with_its_options(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of its own is parsed as a whole; in running text only the options' names are checked."""
    for name in ("BOOTSTRAP_SERVERS", "MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "none")
    text = page.read_text()
    for line in LINE.findall(text):
        command, given = command_of(shlex.split(line.partition(" | ")[0], comments=True))
        if command is not None:
            assert command.make_context("fraud", given).params, line
    for quoted in IN_TEXT.findall(text):
        command, given = command_of(shlex.split(" ".join(quoted.split())))
        if command is not None:
            known = {
                name for parameter in command.params for name in parameter.opts + parameter.secondary_opts
            }
            options = {word.partition("=")[0] for word in given if word.startswith("--")}
            assert options <= known | {"--help"}, quoted


def test_examples_that_need_no_servers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = {" ".join(words): EXAMPLE.findall(command.help)[0] for words, command in ALL}
    outputs = []
    for name in ("simulate", "tokens add", "tokens list", "tokens revoke", "gameday"):
        done = CliRunner().invoke(cli.app, shlex.split(examples[f"fraud {name}"])[1:])
        assert done.exit_code == 0, done.output
        outputs.append(done.output)
    assert (tmp_path / "tx.parquet").exists()
    assert "ada" in outputs[2]


def test_the_example_is_shown() -> None:
    shown = CliRunner().invoke(cli.app, ["stack", "up", "--help"]).output
    assert "fraud stack up --partitions 4" in " ".join(shown.split())
