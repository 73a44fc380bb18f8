import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import health, stack, state
from deploy.local.errors import StackError
from deploy.local.processes import Server
from deploy.local.state import State

pytestmark = pytest.mark.unit


def test_state_survives_saving_and_loading(tmp_path: Path) -> None:
    saved = State(ports={"kafka": 1}, servers={"kafka": Server(1, 2.5, "marker")})
    state.save(tmp_path, saved)
    assert state.load(tmp_path) == saved


def test_a_missing_record_is_an_empty_stack(tmp_path: Path) -> None:
    assert state.load(tmp_path) == State()
    assert {each.state for each in health.status(tmp_path)} == {"stopped"}
    health.check(tmp_path)
    assert stack.down(tmp_path / "never made") == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"ports": {}, "servers": {"kafka": 1}}'])
def test_a_damaged_record_is_reported_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / state.FILE).write_text(text)
    with pytest.raises(StackError, match=r"is damaged: delete it"):
        state.load(tmp_path)


def test_endpoints_without_a_stack_say_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no stack runs on .* `fraud stack up --data-dir"):
        stack.endpoints(tmp_path)


def test_a_dead_server_is_reported_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "kafka.log").write_text("all was well\nthe disk is gone\n")
    state.save(tmp_path, State(ports={"kafka": 1}, servers={"kafka": Server(2**22 + 1, 1.0, "marker")}))
    with pytest.raises(StackError, match=r"(?s)kafka ended unexpectedly.*the disk is gone"):
        health.check(tmp_path)
    assert [each.state for each in health.status(tmp_path) if each.service == "kafka"] == ["died"]


def test_an_unwritable_directory_is_reported_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(StackError, match="choose another --data-dir"),
        state.exclusive(tmp_path / "file" / "x"),
    ):
        pass


def test_second_command_waits_for_the_first(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from deploy.local import state\n"
        "with state.exclusive(Path(sys.argv[1]), lambda line: print('waits', flush=True)):\n"
        "    print('in', flush=True)"
    )
    with state.exclusive(tmp_path):
        second = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert second.stdout is not None
        assert second.stdout.readline() == "waits\n"
    assert second.stdout.readline() == "in\n"
    assert second.wait(20) == 0


def test_full_disk_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "MINIMUM_FREE_BYTES", 2**62)
    with pytest.raises(StackError, match=r"MiB are free for .* make room"):
        stack.up(tmp_path)
    assert state.load(tmp_path) == State()
