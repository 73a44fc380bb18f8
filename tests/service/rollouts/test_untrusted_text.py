"""Text and names that callers choose: on terminals, in filters, in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from harness.memory_rollouts import ADA, BOB, MemoryRollouts, proposal
from harness.rollout_records import event
from test_desk import desk_of, refused, step
from typer.testing import CliRunner

from deploy import cli
from feature_store.errors import FraudError
from feature_store.printable import printable
from models import registry, tracking
from models.errors import ModelError
from models.rollouts.events import Type
from service.rollouts import commands
from service.rollouts.model_registry import ModelRegistry
from service.rollouts.options import Connection

pytestmark = pytest.mark.unit

EVIL = "fine\x1b]0;owned\x07\x1b[2J\r\nseq 9 by root\u202e"


def test_printable_is_one_line_without_control_characters() -> None:
    assert printable(EVIL).isprintable()
    assert printable("Bäckerei, 100 % 日本") == "Bäckerei, 100 % 日本"


def test_a_terminal_gets_no_control_characters_of_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events written past the desk may have them; the desk refuses new ones."""
    log = MemoryRollouts()
    desk_of(log).propose(proposal(), ADA)
    log.put(replace(event(Type.SHADOW_STARTED, "r2", 2), reason=EVIL, actor=EVIL[:20]))
    monkeypatch.setattr(Connection, "desk", lambda _: desk_of(log))
    for command in (["show", "r2"], ["show"], ["show", "r2", "--verdict"]):
        shown = CliRunner().invoke(commands.app, [*command, "--bootstrap-servers", "none"])
        assert shown.exit_code == 0, shown.output
        assert shown.stdout.replace("\n", "").isprintable(), shown.stdout


def test_an_error_on_a_terminal_has_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise FraudError(f"there is no rollout {EVIL}")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err.removesuffix("\n").isprintable()


@pytest.mark.parametrize("field", ["reason", "rollout_id"])
def test_a_change_with_control_characters_is_refused(field: str) -> None:
    desk = desk_of(MemoryRollouts())
    changed: Any = replace(proposal(), **{field: EVIL[:40]})
    assert refused(lambda: desk.propose(changed, ADA)) == "contract"
    desk.propose(proposal(), ADA)
    assert refused(lambda: desk.take(replace(step(Type.ROLLED_BACK, "b"), reason=EVIL), BOB)) == "contract"


def test_lists_of_many_names_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(registry, "versions", lambda _uri, name: asked.append(name) or [])
    known = ModelRegistry("somewhere", clock=lambda: 0.0)
    for number in range(1_000):
        known.versions(f"name-{number}")
    known.versions("name-999")
    assert len(asked) == 1_000
    known.versions("name-0")
    assert len(asked) == 1_001


@pytest.mark.parametrize("name", ["x' OR name != '", 'x"', "x`", "x\\", "x\n"])
def test_a_name_cannot_change_the_filter_of_the_registry(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def connected(_uri: str) -> Iterator[None]:
        yield

    monkeypatch.setattr(tracking, "registry", connected)
    with pytest.raises(ModelError, match="is no name of a model"):
        registry.versions("somewhere", name)
