"""The tokens file: only hashes, readable by its owner only, written atomically."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy import cli
from service.rollouts.requests import GUARD
from service.security import tokens
from service.security.roles import Role
from service.security.tokens import TokensError, TokensFile

pytestmark = pytest.mark.unit
ENTRY = '{"tokens": [{"name": "a", "role": "ROLE", "sha256": "HASH", "created_at": 1, "created_by": "x"}]}'


def test_commands_add_list_and_revoke(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tokens.json"
    run = CliRunner()
    result = run.invoke(
        cli.app, ["tokens", "add", "alice", "--role", "operator", "--expires", "90d", "--file", str(path)]
    )
    secret = result.stdout.strip()
    assert result.exit_code == 0
    assert len(secret) == len(tokens.PREFIX) + 43
    assert secret not in path.read_text()
    assert tokens.digest(secret) in path.read_text()
    for part, mode in ((path, 0o600), (path.parent, 0o700)):
        assert stat.S_IMODE(part.stat().st_mode) == mode
    kept = TokensFile(path)
    search_result = kept.find(secret)
    assert search_result is not None
    assert (search_result.name, search_result.role, search_result.expires_at) == (
        "alice",
        Role.OPERATOR,
        search_result.created_at + 90 * 86_400_000,
    )
    assert "alice" in (
        stdout := run.invoke(cli.app, ["tokens", "list"], env={"FRAUD_TOKENS_FILE": str(path)}).stdout
    )
    assert "operator  active" in stdout
    assert secret not in stdout
    assert run.invoke(cli.app, ["tokens", "revoke", "alice", "--file", str(path)]).exit_code == 0
    search_result = kept.find(secret)  # the changed file is read again
    assert search_result is not None
    assert search_result.state(search_result.created_at) == "revoked"
    assert "revoked" in run.invoke(cli.app, ["tokens", "list", "--file", str(path)]).stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["add", "alice", "--role", "king"], "is no role"),
        (["add", "alice", "--role", "viewer"], "there is a token of alice"),
        (["add", "local", "--role", "viewer"], "local is the name of callers while there is no tokens file"),
        (["add", GUARD, "--role", "viewer"], "guard is the name of the guards of rollouts in the audit log"),
        (["add", "Al ice", "--role", "viewer"], "is no name"),
        (["add", "bob", "--role", "viewer", "--expires", "soon"], "is no duration"),
        (["revoke", "bob"], "no token of bob"),
    ],
)
def test_refused_changes_are_one_line_and_change_nothing(
    arguments: list[str], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    tokens.add(path, "alice", Role.VIEWER, "root", 1)
    before = path.read_bytes()
    fault = CliRunner().invoke(cli.app, ["tokens", *arguments, "--file", str(path)]).exception
    assert isinstance(fault, TokensError)
    assert text in str(fault)
    assert "\n" not in str(fault)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tokens.json", "tokens.json.lock"]


def test_a_revoked_name_may_be_used_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    first = tokens.add(path, "alice", Role.VIEWER, "root", 1)
    tokens.revoke(path, "alice", "root", 2)
    second = tokens.add(path, "alice", Role.ADMIN, "root", 3)
    kept = TokensFile(path)
    assert [getattr(kept.find(name), "revoked_at", 0) for name in (first, second)] == [2, None]
    assert kept.find("") is None
    assert kept.find(tokens.digest(second)) is None  # the stored hash is no valid token


def test_simultaneous_changes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    with ThreadPoolExecutor(8) as pool:
        result = list(pool.map(lambda n: tokens.add(path, f"n{n}", Role.VIEWER, "root", 1), range(24)))
    assert len(tokens.read(path)) == 24
    assert all(TokensFile(path).find(secret) for secret in result)


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{", '{"schema_version": 2, "tokens": []}', '{"tokens": [], "more": 1}',
        ENTRY.replace("HASH", "0" * 64).replace("ROLE", "god"),
        ENTRY.replace("HASH", "abc").replace("ROLE", "admin"),
    ],
)  # fmt: skip
def test_a_damaged_file_admits_no_caller(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret = tokens.add(path, "alice", Role.VIEWER, "root", 1)
    kept = TokensFile(path)
    path.write_text(content)
    for _ in range(2):
        with pytest.raises(TokensError, match="no tokens file"):
            kept.find(secret)
    path.unlink()
    with pytest.raises(TokensError, match="cannot be read"):
        kept.find(secret)


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret = tokens.add(path, "alice", Role.VIEWER, "root", 1)
    kept = TokensFile(path)
    path.chmod(0o620)
    with pytest.raises(TokensError, match="chmod 600"):
        kept.find(secret)
    path.chmod(0o640)
    assert kept.find(secret)


def test_expiry_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    tokens.add(path, "alice", Role.VIEWER, "root", 1, 1000)
    token = tokens.read(path)[0]
    assert [token.state(now) for now in (999, 1000)] == ["active", "expired"]
    assert json.loads(path.read_text())["tokens"][0]["role"] == "viewer"
