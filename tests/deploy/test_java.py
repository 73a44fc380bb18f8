import os
from pathlib import Path

import pytest

from deploy.local import java
from deploy.local.errors import StackError

pytestmark = pytest.mark.unit


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    executable.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("command not found", None),
    ],
)
def test_the_release_is_read_from_any_vendors_output(text: str, release: int | None) -> None:
    assert java.parse_release(text) == release


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("PATH", f"{old / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java.find() == java.Java(new / "bin" / "java", 21)


def test_an_old_java_is_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "11.0.2")))
    with pytest.raises(StackError, match=r"is Java 11, too old: install .* 17 or newer"):
        java.find()


def test_a_missing_java_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match=r"^no Java found: install.*\Z"):
        java.find()


def test_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(StackError, match="correct or unset JAVA_HOME"):
        java.find()
